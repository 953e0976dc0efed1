"""Figures that the project stands by, each a script: `make bench-…`."""
