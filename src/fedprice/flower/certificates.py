"""Temporary certificates and node keys for a deployment on this machine."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["holds_certificates", "write_certificates", "write_node_key"]

_DAYS = 7


def holds_certificates(folder: Path, address: str = "127.0.0.1") -> bool:
    """Return whether a directory has certificates for an address that are valid for another day."""
    if not all((folder / name).exists() for name in ("ca.crt", "server.pem", "server.key")):
        return False
    leaf = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    known = names.get_values_for_type(x509.IPAddress)
    return ipaddress.ip_address(address) in known and leaf.not_valid_after_utc > tomorrow


def write_certificates(folder: Path, address: str = "127.0.0.1") -> None:
    """Write ca.crt, and server.pem with server.key for an address and localhost."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("fedprice, for the occasion")
    local = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")]
    )
    root = _certificate(issuer, authority.public_key(), issuer, authority, ca=True)
    leaf = _certificate(_name("localhost"), server.public_key(), issuer, authority, extra=local)
    for name in ("ca.crt", "server.pem", "server.key"):
        (folder / name).unlink(missing_ok=True)  # left by an earlier deployment
    (folder / "ca.crt").write_bytes(root.public_bytes(serialization.Encoding.PEM))
    (folder / "server.pem").write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    _write_private(
        folder / "server.key",
        server.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def write_node_key(path: Path) -> None:
    """Write the key that identifies a SuperNode to its SuperLink, and its public part (.pub)."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(
        path,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        ),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_suffix(".pub").write_bytes(public + b"\n")


def _write_private(path: Path, content: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    public: Any,
    issuer: x509.Name,
    authority: Any,
    *,
    ca: bool = False,
    extra: x509.SubjectAlternativeName | None = None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    if extra is not None:
        builder = builder.add_extension(extra, critical=False)
    if ca:
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = builder.add_extension(usage, critical=True)
    return builder.sign(authority, hashes.SHA256())
