"""A mechanism in three lines, to be named as `--scheme examples/schemes/by_impact.py:by_impact`."""

import fedprice as fp


def by_impact(game):
    """Pay in proportion to impact: how much it hurts the model when the client is away."""
    prices = fp.scale_to_budget(game, game.impact)
    return fp.Outcome.from_prices(game, prices, scheme="by-impact")
