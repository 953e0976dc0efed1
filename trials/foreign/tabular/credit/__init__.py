"""credit: A Flower app."""
