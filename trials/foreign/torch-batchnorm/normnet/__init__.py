"""normnet: A Flower app."""
