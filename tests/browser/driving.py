"""What tests do with a page in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Open = Callable[..., Any]
"""Opens a page by its name; see the fixture `opened`."""


def unfold(page: Any) -> None:
    """Open everything that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def drawn(page: Any) -> None:
    """Wait until the browser has drawn what it was asked to."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def canvas(page: Any, chart: str) -> str:
    """What a chart shows, once it is drawn."""
    drawn(page)
    return str(page.locator(f"[data-chart={chart}] canvas").evaluate("one => one.toDataURL()"))


def box(page: Any, chart: str) -> Any:
    """Where a chart is drawn, and what has its keys."""
    return page.locator(f"[data-chart={chart}] .chart-box")


def reading(page: Any, chart: str) -> str:
    """What the chart says of the place that was last pointed at."""
    return str(page.locator(f"[data-chart={chart}] .chart-reading").inner_text())


def drag(page: Any, chart: str, start: float, end: float) -> None:
    """Across the chart, by shares of its width."""
    place = box(page, chart)
    place.scroll_into_view_if_needed()
    at = place.bounding_box()
    page.mouse.move(at["x"] + start * at["width"], at["y"] + 40)
    page.mouse.down()
    page.mouse.move(at["x"] + end * at["width"], at["y"] + 50, steps=5)
    page.mouse.up()
