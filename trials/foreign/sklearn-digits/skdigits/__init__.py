"""skdigits: A Flower app."""
