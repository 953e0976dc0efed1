"""The figure of lies, drawn with matplotlib (extra `plot`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.plots import COLORS, new_figure
from fedprice.pricing.display import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedprice.beliefs.lies import Manipulability

__all__ = ["draw_lies"]

FAR = 50  # beyond this multiple of the median, gains are drawn on a logarithmic scale
MOST_BARS = 60  # clients drawn in the panels that have one bar per client


def draw_lies(lies: Manipulability) -> Figure:
    """Draw who gains by lying, how much less the others are paid, and how much the loss rises."""
    from matplotlib.ticker import PercentFormatter

    figure, (gain, money, loss) = new_figure(3)
    truth = lies.truth
    relative, impact = lies.relative_gain, truth.game.impact
    pays = truth.prices < 0
    for who, color, name in ((~pays, COLORS[0], "is paid"), (pays, COLORS[5], "pays")):
        rows = np.flatnonzero(who & (impact > 0) & np.isfinite(relative))
        if rows.size:
            style: dict[str, Any] = {"s": 22, "color": color, "alpha": 0.75, "linewidths": 0}
            gain.scatter(impact[rows], relative[rows], label=f"{name} when honest", **style)
    median = float(np.median(relative))
    gain.axhline(
        median, color="0.4", linewidth=0.8, linestyle="--", label=f"median {number(median)}"
    )
    top = 1.4 * gain.dataLim.y1 or 1.0  # room for the legend
    gain.set(title="who gains", xlabel="impact", ylabel="gain / honest money surplus", xscale="log")
    if top > FAR * median > 0:  # a tiny surplus would flatten all other points
        gain.set_yscale("symlog", linthresh=median)
        top *= top / median
    gain.set_ylim(0, top)
    gain.legend(frameon=False, fontsize="small", loc="upper right")

    order = np.argsort(-lies.gain, kind="stable")[:MOST_BARS]
    place = np.arange(1, order.size + 1)
    money.bar(place, lies.gain[order], color=COLORS[0], label="the liar gains")
    money.bar(place, lies.others_payment[order], color=COLORS[1], label="the others are paid less")
    if not lies.committed:
        money.bar(
            place, -lies.overspend[order], bottom=np.minimum(lies.others_payment[order], 0),
            color=COLORS[3], label="the server overspends",
        )  # fmt: skip
    money.axhline(0, color="0.4", linewidth=0.8)
    money.set(title="who pays: one liar at a time", ylabel="money")
    money.legend(frameon=False, fontsize="small")

    loss.bar(place, lies.loss_increase[order], color=COLORS[5])
    loss.axhline(0, color="0.4", linewidth=0.8)
    loss.yaxis.set_major_formatter(PercentFormatter(1.0))
    loss.set(title="what the model loses", ylabel="increase of the expected loss")
    count = lies.gain.size
    shown = "" if order.size == count else f", the {order.size} largest of {number(count)}"
    for axis in (money, loss):
        axis.grid(visible=False, axis="x")
        axis.set(xlabel=f"liar, by falling gain{shown}")
    summary = lies.summary()
    paid = "held to the reported level" if lies.committed else "free to choose the level"
    figure.suptitle(
        f"Lies within a factor of {number(lies.factor)} ({paid}): "
        f"{summary['share_gaining']:.0%} of {number(count)} clients gain alone; if all lie, the "
        f"loss changes by {summary['everybody_loss_increase']:+.0%} and "
        f"{summary['everybody_share_gaining']:.0%} of them gain",
        fontsize="medium",
    )
    return figure
