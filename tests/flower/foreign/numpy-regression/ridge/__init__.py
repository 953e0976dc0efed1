"""ridge: A Flower app."""
