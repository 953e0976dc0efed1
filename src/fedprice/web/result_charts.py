"""Charts of a reproduction, as ECharts options: curves with bands over seeds, and verdicts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.plots import ON_SCREEN as COLORS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fedprice.arrays import FloatArray
    from fedprice.web.reproduction import Run

__all__ = [
    "FIGURES",
    "curve_chart",
    "end_of",
    "figures_of",
    "legend_of",
    "run_title",
    "seeds_of",
    "setup_title",
    "verdict_chart",
]

POINTS = 200  # times at which curves are drawn
SKIPPED = 20  # of them at the start, whose large losses would hide everything else
MECHANISMS = {
    "equilibrium": "random joiners, unbiased (ours)",
    "difference": "random joiners, difference estimator",
    "fedavg": "random joiners, FedAvg",
    "subset": "fixed subset, FedAvg",
    "full": "full participation (beyond the budget)",
}
WORDS = {"mean_value": "mean value", "mean_cost": "mean cost", "budget": "budget"}
FIGURES = {
    "schemes": "Pricing schemes",
    "sweep": "Mean value, mean cost or budget",
    "bias": "Biased and unbiased aggregation",
}
VERDICT_COLORS = {"holds": COLORS[2], "inconclusive": COLORS[6], "fails": COLORS[5]}


def setup_title(name: str) -> str:
    """Return a setup's name as the report's tables write it.

    >>> setup_title("setup1"), setup_title("mine")
    ('Setup 1', 'mine')
    """
    number = name.removeprefix("setup")
    return f"Setup {number}" if number.isdigit() and number != name else name


def figures_of(runs: Mapping[str, Sequence[Run]]) -> dict[str, list[str]]:
    """Return which runs belong to which figure, for those that have any to compare.

    >>> figures_of(dict.fromkeys(["equilibrium", "uniform", "fedavg", "budget=9"], []))
    {'schemes': ['equilibrium', 'uniform'], 'sweep': ['equilibrium', 'budget=9'],
    'bias': ['equilibrium', 'fedavg']}
    """
    swept = [name for name in runs if name.partition("=")[0] in WORDS and "=" in name]
    others = [name for name in runs if name in MECHANISMS and name != "equilibrium"]
    schemes = [name for name in runs if name not in swept and name not in others]
    own = [name for name in ("equilibrium",) if name in runs]
    found = {"schemes": schemes, "sweep": own + swept, "bias": own + others}
    return {name: some for name, some in found.items() if len(some) > len(own) or some == schemes}


def run_title(name: str, figure: str) -> str:
    """Return what a run is called in a figure.

    >>> run_title("equilibrium", "schemes"), run_title("mean_value=80000", "sweep")
    ('equilibrium', 'mean value 80,000')
    """
    what, _, value = name.partition("=")
    if figure == "bias" and name in MECHANISMS:
        return MECHANISMS[name]
    if figure == "sweep" and what in WORDS and value:
        return f"{WORDS[what]} {float(value):,.10g}"
    return "as in Table I" if figure == "sweep" and name == "equilibrium" else name


def legend_of(runs: Mapping[str, Sequence[Run]], figure: str) -> dict[str, str]:
    """Return the title of each run in a figure with its colour."""
    names = figures_of(runs)[figure]
    return {run_title(name, figure): COLORS[n % len(COLORS)] for n, name in enumerate(names)}


def seeds_of(runs: Mapping[str, Sequence[Run]], names: Collection[str]) -> list[int]:
    """Return all seeds of some runs."""
    return sorted({run.seed for name in names for run in runs[name]})


def end_of(runs: Mapping[str, Sequence[Run]], names: Collection[str]) -> float:
    """Return the simulated seconds that all of some runs cover, whatever seeds are shown."""
    return min(float(run.time[-1]) for name in names for run in runs[name])


def curve_chart(
    runs: Mapping[str, Sequence[Run]],
    figure: str,
    what: str,
    *,
    hidden: Collection[int] = (),
    single: bool = False,
) -> dict[str, Any]:
    """Draw loss or accuracy over simulated time: means with bands, or single runs.

    Parameters
    ----------
    runs
        The runs of a setup, by name.
    figure
        One of `figures_of(runs)`.
    what
        "loss" or "accuracy".
    hidden
        Seeds that are left out of everything.
    single
        Whether to draw each run separately, too.
    """
    names = figures_of(runs)[figure]
    times = np.linspace(0, end_of(runs, names), POINTS)
    series: list[dict[str, Any]] = []
    lows, highs = [], []
    colors = legend_of(runs, figure)
    for name in names:
        chosen = [run for run in runs[name] if run.seed not in hidden]
        if not chosen:
            continue
        title = run_title(name, figure)
        color = colors[title]
        values = np.array([np.interp(times, run.time, getattr(run, what)) for run in chosen])
        mean = values.mean(axis=0)
        spread = values.std(axis=0, ddof=1) if len(chosen) > 1 else np.zeros(POINTS)
        if single:
            series += [_line(times, row, f"seed {run.seed + 1}", color, width=0.8, opacity=0.55)
                       for run, row in zip(chosen, values, strict=True)]  # fmt: skip
        elif len(chosen) > 1:
            series += _band(times, mean - spread, mean + spread, color)
        series.append(_line(times, mean, title, color, width=2.2) | {"z": 3})
        drawn = values if single else np.array([mean - spread, mean + spread])
        with warnings.catch_warnings():  # a run that diverged has no finite numbers left
            warnings.simplefilter("ignore", RuntimeWarning)
            lows.append(np.nanmin(drawn[:, SKIPPED:]))
            highs.append(np.nanmax(drawn[:, SKIPPED:]))
    low, high = (min(lows), max(highs)) if lows else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.01
    axis: dict[str, Any] = {"type": "value", "name": what, "nameLocation": "middle", "nameGap": 48}
    axis["axisLabel"] = {"showMinLabel": False, "showMaxLabel": False}
    if np.isfinite(low + high):
        axis |= {"min": _floor(low - margin), "max": _floor(high + margin)}
    return {
        "grid": {"left": 64, "right": 18, "top": 12, "bottom": 44},
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "value", "name": "simulated time, s", "nameLocation": "middle", "nameGap": 28,
            "max": _floor(float(times[-1])),
            "axisLabel": {"showMaxLabel": False},
        },
        "yAxis": axis,
        "series": series,
    }  # fmt: skip


def _floor(value: float) -> float:
    """Return a number with few enough digits for an axis."""
    return float(f"{value:.3g}")


def _points(times: FloatArray, values: FloatArray) -> list[list[float | None]]:
    pairs = zip(times.tolist(), values.tolist(), strict=True)
    return [[round(x, 3), float(f"{y:.6g}") if np.isfinite(y) else None] for x, y in pairs]


def _line(
    times: FloatArray, values: FloatArray, name: str, color: str, width: float, opacity: float = 1.0
) -> dict[str, Any]:
    return {
        "type": "line",
        "name": name,
        "data": _points(times, values),
        "showSymbol": False,
        "itemStyle": {"color": color},
        "lineStyle": {"color": color, "width": width, "opacity": opacity},
        "tooltip": {"show": opacity == 1.0},
    }


def _band(times: FloatArray, low: FloatArray, high: FloatArray, color: str) -> list[dict[str, Any]]:
    """Return two lines of which the second is stacked on the first, and filled down to it."""
    hidden = {"width": 0, "color": color}
    common = {
        "type": "line",
        "showSymbol": False,
        "stack": color,
        "stackStrategy": "all",
        "silent": True,
        "lineStyle": hidden,
        "itemStyle": {"color": color},
        "tooltip": {"show": False},
    }
    return [
        common | {"data": _points(times, low)},
        common
        | {"data": _points(times, high - low), "areaStyle": {"color": color, "opacity": 0.2}},
    ]


def verdict_chart(counts: Mapping[str, int]) -> dict[str, Any]:
    """Draw how many claims hold, are inconclusive, and fail, as one bar."""
    return {
        "grid": {"left": 2, "right": 2, "top": 2, "bottom": 2},
        "xAxis": {"type": "value", "show": False, "max": sum(counts.values()) or 1},
        "yAxis": {"type": "category", "show": False, "data": [""]},
        "tooltip": {"trigger": "item"},
        "series": [
            {
                "type": "bar",
                "name": name,
                "stack": "all",
                "data": [counts.get(name, 0)],
                "barWidth": 18,
                "itemStyle": {"color": color, "borderRadius": 3},
                "tooltip": {"formatter": "{a}: {c}"},
            }
            for name, color in VERDICT_COLORS.items()
        ],
    }
