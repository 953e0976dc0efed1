"""`Chart`: a chart on a page, in the colours of the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice._plumbing.plots import ON_SCREEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Chart"]

_INK = "getComputedStyle(document.body).color"  # what text is written in, light or dark
_GRID = "#8884"


class Chart:
    """A chart of ECharts; names in it are text, never HTML.

    Parameters
    ----------
    options
        As ECharts takes them.
    label
        What the chart shows, for people who cannot see it.
    height
        In CSS units.
    """

    def __init__(self, options: Mapping[str, Any], label: str, height: str = "300px") -> None:
        self.element = ui.echart(_themed(options)).classes("w-full")
        self.element.style(f"height: {height}").props(f'role=img aria-label="{label}"')

    def show(self, options: Mapping[str, Any]) -> None:
        """Draw other options."""
        self.element.options.clear()
        self.element.options.update(_themed(options))
        self.element.update()

    def on_point(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with the name of a point that is clicked."""
        self.element.on_point_click(lambda event: handler(str(event.name)))

    def on_handle(self, handler: Callable[[float], None]) -> None:
        """Call `handler` with the place on the x axis to which its handle is dragged."""
        own = self.element.id
        self.element.on("handle", lambda event: handler(float(event.args)), throttle=0.05)
        ui.run_javascript(
            f"const wait = setInterval(() => {{ const own = getElement({own}); if (!own?.chart) "
            "return; clearInterval(wait); own.chart.on('updateAxisPointer', event => "
            "event.axesInfo?.length && own.$emit('handle', event.axesInfo[0].value)); }, 20)"
        )


def _themed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the page's colours and type, and with tooltips that contain no HTML."""
    own: dict[str, Any] = json.loads(json.dumps(options))
    axes = {
        "axisLine": {"lineStyle": {"color": "#888"}},
        "splitLine": {"lineStyle": {"color": _GRID}},
    }
    for name in ("xAxis", "yAxis"):
        found = own.get(name)
        for axis in found if isinstance(found, list) else [found] if found else []:
            axis.update({key: axes[key] | axis.get(key, {}) for key in axes})
            axis.setdefault("axisLabel", {})[":color"] = _INK
            axis.setdefault("nameTextStyle", {})[":color"] = _INK
    # NiceGUI looks into every list for changes and for bytes, and into no tuple.
    own["series"] = tuple(own.get("series", ()))
    for series in own["series"]:
        if "label" in series and "color" not in series["label"]:
            series["label"][":color"] = _INK
        if "markLine" in series:
            series["markLine"]["precision"] = -1  # ECharts would draw 0.1533 at 0.15
    if "legend" in own:
        own["legend"] = {"itemWidth": 14, "itemHeight": 10} | own["legend"]
    for name in ("legend", "title"):
        if name in own:
            own[name].setdefault("textStyle", {})[":color"] = _INK
    tooltip = {"confine": True, "backgroundColor": "#22262d", "borderWidth": 0,
               "textStyle": {"color": "#f4f5f7"}}  # fmt: skip
    own["tooltip"] = tooltip | own.get("tooltip", {}) | {"renderMode": "richText"}
    return {
        "__v_skip": True,  # Vue would watch every number in it for changes
        "color": list(ON_SCREEN),
        "animation": False,
        "textStyle": {"fontFamily": "inherit"},
    } | own
