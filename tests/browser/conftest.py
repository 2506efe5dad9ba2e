"""A real browser, and pages to open in it. Without one these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chart_samples as samples
import pytest
from gate_samples import PASS
from gates_with_pairs import slower_gate

from perfdoctor.report.gate_words import prepare_gate
from perfdoctor.report.html.charts.flame import flame_chart
from perfdoctor.report.html.page import page, render_html

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'perfdoctor[browser]'")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        # Root, as in containers, has no sandbox.
        launched = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of 10,000 steps and 4,096 ranks; a short one of four; a gate; a flame graph."""
    folder = tmp_path_factory.mktemp("pages")
    long, short = (samples.long_run(folder / name, count) for name, count in (("long", 10_000), ("short", 120)))
    graph = flame_chart(samples.flame(), "Samples of all threads over 24 ms of each step.")
    assert graph is not None
    texts = {
        "long": render_html(samples.many_ranks(), next_command="perfdoctor env", recorded=[long.path]),
        "short": render_html(samples.many_ranks(4), next_command="perfdoctor env", recorded=[short.path]),
        "gate": slower_gate(),
        "flame": page("gate.html.j2", {"flame": graph}, title="flame", gate=prepare_gate(PASS), arms=()),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


@pytest.fixture
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Opens a page by its name. At the end none may have said anything on the console, nor asked for anything."""
    contexts, said = [], []

    def open_page(name: str, *, width: int = 1280, dark: bool = False, **settings: Any) -> Any:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **settings)
        contexts.append(context)
        opened = context.new_page()
        opened.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        opened.on("pageerror", lambda error: said.append(f"error: {error}"))
        url = pages[name].as_uri()
        opened.on("request", lambda one: one.url.startswith((url, "data:")) or said.append(f"asked for {one.url}"))
        opened.goto(url)
        return opened

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
