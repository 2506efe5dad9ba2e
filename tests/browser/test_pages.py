"""A report as people open it: in light and dark, on a phone and on a large screen, read aloud, on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from chart_samples import EVIL
from driving import Open, canvas, unfold

LAYOUT = (Path(__file__).parent / "layout.js").read_text()
NAMES = ("long", "short", "gate", "flame")
NO_AXE = "no axe: pip install 'perfdoctor[browser]'"
WIDTHS = (390, 1280, 1920)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious(opened: Open, name: str, dark: bool) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="no axe: pip install 'perfdoctor[browser]'"
    )
    page = opened(name, dark=dark)
    unfold(page)
    found = axe.Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in serious] == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps_or_is_cut(opened: Open, name: str, width: int) -> None:
    page = opened(name, width=width)
    assert page.evaluate(LAYOUT) == []
    unfold(page)
    assert page.evaluate(LAYOUT) == []


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_is_folded_opens(opened: Open, name: str) -> None:
    page = opened(name)
    folded = page.locator("details:not([open]) > summary")
    count = folded.count()
    assert count > 0
    for _ in range(count):
        folded.first.click()
    assert folded.count() == 0
    assert page.locator("details").evaluate_all("all => all.every((one) => one.offsetHeight > 30)")


@pytest.mark.parametrize("name", NAMES)
def test_names_with_markup_stay_text(opened: Open, name: str) -> None:
    page = opened(name)
    assert page.locator("b").count() == 0
    unfold(page)
    assert (EVIL in page.inner_text("body")) is (name != "gate")


def test_without_scripts_every_chart_has_its_words_and_numbers(opened: Open) -> None:
    page = opened("short", java_script_enabled=False)
    figures = page.locator("figure.chart")
    assert figures.count() == 4
    for i in range(4):
        figure = figures.nth(i)
        assert figure.locator("figcaption").inner_text().endswith(".")
        figure.locator("summary").click()
        assert figure.locator("tbody tr").count() > 1


def test_the_button_makes_it_dark_with_its_charts(opened: Open) -> None:
    page = opened("short")
    before = canvas(page, "steps")
    page.click("#theme")
    assert canvas(page, "steps") != before
    page.click("#theme")
    assert canvas(page, "steps") == before


def test_charts_fit_on_paper(opened: Open) -> None:
    page = opened("short", width=700)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert page.locator(".chart-tools").first.is_hidden()
    assert page.locator("canvas").evaluate_all("all => all.every((one) => one.getBoundingClientRect().width <= 700)")
