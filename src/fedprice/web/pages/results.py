"""The report that `fedprice study` wrote, in the frame of the pages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nicegui import ui
from starlette.responses import FileResponse, PlainTextResponse

from fedprice.errors import FedpriceError
from fedprice.web.page_frame import Problem, empty, frame
from fedprice.web.study_results import report_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from fedprice.web.served_files import Served

__all__ = ["report", "results_page"]

COMMAND = "fedprice study digits --out results"
# The report is one file without scripts, whose figures and styles are inside it.
POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {"content-security-policy": POLICY, "x-frame-options": "SAMEORIGIN"}


async def results_page(served: Served) -> None:
    """Draw the page."""
    with frame("Results"):
        if served.results is None:
            empty(
                "Nothing to show yet. Compare the schemes in a study, then serve its directory.",
                f"{COMMAND}\nfedprice serve --results results",
            )
            return
        try:
            await asyncio.to_thread(report_of, served.results)
        except FedpriceError as error:
            Problem().show(str(error))
            return
        # Relative to /results, wherever a proxy puts it.
        ui.element("iframe").props('src="results/report.html" title="Report"').classes("fp-report")


def report(served: Served) -> Response:
    """Return the report itself."""
    try:
        if served.results is not None:
            return FileResponse(report_of(served.results), media_type="text/html", headers=HEADERS)
    except FedpriceError as error:
        return PlainTextResponse(f"{error}\n", 404)
    return PlainTextResponse("no study is served here.\n", 404)
