"""A Flower app that buys participation."""
