"""Pricing clients whose costs and values nobody knows."""
