#!/bin/sh
# Makes what compose.yaml needs, in ./secrets: certificates, node keys, market keys, a password.
# usage: make-secrets.sh CLIENTS [HOST]    HOST: the name by which clients know the server
set -eu
clients=${1:?usage: make-secrets.sh CLIENTS [HOST]}
host=${2:-superlink}
cd "$(dirname "$0")"
umask 077
mkdir secrets # fails if it is there: no key is overwritten
cd secrets

# An authority that lasts ten years, and a certificate of the server that lasts one.
openssl ecparam -name prime256v1 -genkey -noout -out ca.key
openssl req -x509 -new -key ca.key -sha256 -days 3650 -subj "/CN=fedprice authority" -out ca.crt
openssl ecparam -name prime256v1 -genkey -noout -out server-tls.key
openssl req -new -key server-tls.key -subj "/CN=$host" -out server.csr
printf 'subjectAltName=DNS:%s,DNS:superlink,DNS:localhost,IP:127.0.0.1\n' "$host" >server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days 365 \
  -extfile server.ext -out server.pem
rm server.csr server.ext

password=$(openssl rand -hex 24)
printf '%s' "$password" >database-password
printf 'postgresql+psycopg://market:%s@database/market' "$password" >ledger-url

fedprice flower keys market --clients "$clients"
n=1
while [ "$n" -le "$clients" ]; do
  ssh-keygen -q -t ecdsa -b 384 -N '' -C "node-$n" -f "node-$n"
  printf 'cost = 1.0  # what joining every round costs this client\n' >"market/client-$n.toml"
  n=$((n + 1))
done
chmod 644 ca.crt server.pem ./*.pub market/*.pub
