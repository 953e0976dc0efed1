"""forest: A Flower app."""
