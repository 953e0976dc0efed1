"""The project's published measurements, one script each: `make bench-…`."""
