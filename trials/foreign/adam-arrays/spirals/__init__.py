"""spirals: A Flower app."""
