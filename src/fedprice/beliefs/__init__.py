"""Pricing clients whose costs and values the server does not know."""
