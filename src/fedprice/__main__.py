"""`python -m fedprice` is the command `fedprice`."""

from fedprice.cli import main

main()
