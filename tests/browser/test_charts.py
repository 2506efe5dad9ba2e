"""Charts under mouse, wheel, keys and fingers; and what they look like."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from chart_samples import EVIL, LATE
from driving import Open, box, canvas, drag, drawn, reading

PICTURES = Path(__file__).parent / "pictures"
DIFFERENT = 14.0
"""Of 255, on average over all colours of a picture: fonts of another machine and smoothing make a few."""

AS_SMALL = """async ([a, width, height]) => {
  const image = new Image();
  image.src = a;
  await image.decode();
  const small = Object.assign(document.createElement("canvas"), { width, height });
  const context = small.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return [small.toDataURL(), [...context.getImageData(0, 0, width, height).data].filter((_, i) => i % 4 < 3)];
}"""


@pytest.mark.parametrize("chart", ["steps", "lanes"])
def test_zoom_by_every_means_and_back(opened: Open, chart: str) -> None:
    page = opened("long")
    whole = canvas(page, chart)
    for change in (
        lambda: drag(page, chart, 0.4, 0.6),
        lambda: page.locator(f"[data-chart={chart}] button", has_text="Zoom in").click(),
        lambda: box(page, chart).press("+"),
        lambda: (box(page, chart).hover(), box(page, chart).focus(), page.mouse.wheel(0, -200)),
    ):
        change()
        zoomed = canvas(page, chart)
        assert zoomed != whole
        box(page, chart).press("PageDown")
        assert canvas(page, chart) != zoomed
        box(page, chart).press("0")
        assert canvas(page, chart) == whole


def test_the_wheel_over_a_chart_that_nobody_chose_scrolls_the_page(opened: Open) -> None:
    page = opened("long")
    whole = canvas(page, "steps")
    box(page, "steps").hover()
    before = page.evaluate("scrollY")
    page.mouse.wheel(0, 200)
    page.wait_for_timeout(500)
    assert page.evaluate("scrollY") > before
    assert canvas(page, "steps") == whole


def test_keys_read_steps(opened: Open) -> None:
    page = opened("long")
    box(page, "steps").press("ArrowRight")
    assert reading(page, "steps").startswith("Step 0: 2.40 s;")
    assert "warm-up" in reading(page, "steps")
    box(page, "steps").press("ArrowRight")
    assert reading(page, "steps").startswith("Step 1: 2")


def test_zoomed_in_keys_go_on_where_one_looks(opened: Open) -> None:
    page = opened("long")
    drag(page, "steps", 0.5, 0.6)
    box(page, "steps").press("ArrowRight")
    step = int(reading(page, "steps").split(":")[0].removeprefix("Step "))
    assert 4000 < step < 6500


def test_a_line_can_be_left_out(opened: Open) -> None:
    page = opened("long")
    whole = canvas(page, "steps")
    line = page.locator(".chart-choices button", has_text="waiting for data")
    line.click()
    assert line.get_attribute("aria-pressed") == "false"
    assert canvas(page, "steps") != whole
    line.click()
    assert canvas(page, "steps") == whole


def test_the_axis_can_be_logarithmic_or_not(opened: Open) -> None:
    page = opened("long")
    button = page.locator("[data-chart=steps] button", has_text="Logarithmic")
    assert button.get_attribute("aria-pressed") == "true", "one step takes 100 times as long as the others"
    before = canvas(page, "steps")
    button.click()
    assert canvas(page, "steps") != before


def test_all_of_4096_ranks_are_drawn(opened: Open) -> None:
    page = opened("long")
    width = int(box(page, "ranks").evaluate("one => one.clientWidth"))
    per_band = width // 2
    place = page.locator("[data-chart=ranks] canvas")
    place.scroll_into_view_if_needed()
    at = place.bounding_box()
    for rank in (0, per_band, 4095):
        row, column = divmod(rank, per_band)
        bands = -(-4096 // per_band)
        band = (at["height"] - 4) / bands
        page.mouse.move(at["x"] + 2 * column + 1, at["y"] + row * band + 16 + 3)
        assert reading(page, "ranks").startswith(f"Rank {rank}, waiting for data: 0.50 ms")
    colours = place.evaluate(
        """one => {
          const scale = window.devicePixelRatio;
          const { data } = one.getContext("2d").getImageData(0, 24 * scale, one.width, 1);
          return new Set(Array.from({ length: data.length / 4 }, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size;
        }"""
    )
    assert colours > 2, "ranks differ in their forward pass"


def test_the_late_rank_is_named(opened: Open) -> None:
    page = opened("long")
    assert f"Rank {LATE} is late" in page.locator("[data-chart=ranks] figcaption").inner_text()
    box(page, "ranks").press("ArrowDown")
    assert reading(page, "ranks").startswith(f"Rank {LATE}, late, forward pass: 1")


def test_a_finger_reads_and_pans(opened: Open) -> None:
    page = opened("short", width=390, has_touch=True, is_mobile=True)
    place = box(page, "ranks")
    place.scroll_into_view_if_needed()
    at = place.bounding_box()
    page.touchscreen.tap(at["x"] + 10, at["y"] + 30)
    assert reading(page, "ranks").startswith("Rank 0")
    place = box(page, "steps")
    place.scroll_into_view_if_needed()
    at = place.bounding_box()
    page.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + 60)
    assert reading(page, "steps").startswith("Step ")


def test_bars_of_a_histogram_are_read(opened: Open) -> None:
    page = opened("short")
    box(page, "distributions").press("ArrowRight")
    assert reading(page, "distributions").startswith("23.0 ms to ")


def test_a_frame_of_the_flame_graph_is_zoomed_to(opened: Open) -> None:
    page = opened("flame")
    frames = page.locator("[data-chart=flame] g.frame")
    before = frames.count()
    box(page, "flame").press("ArrowDown")
    box(page, "flame").press("ArrowDown")
    assert reading(page, "flame").startswith(f"level 1 ({EVIL}:1): 13.8 ms per step, 57.5 %")
    box(page, "flame").press("Enter")
    assert frames.count() != before
    box(page, "flame").press("Escape")
    assert frames.count() == before
    page.fill("[data-chart=flame] input", "LEAF (")
    assert frames.locator("rect").evaluate_all("all => new Set(all.map((one) => one.getAttribute('fill'))).size") > 2


def test_a_pair_of_a_gate_is_read(opened: Open) -> None:
    page = opened("gate")
    assert page.locator("[data-chart=pairs] circle").count() == 16
    box(page, "pairs").press("ArrowRight")
    assert reading(page, "pairs").startswith("uncontended step, pair 1 of 16: +")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("name", "chart"),
    [
        ("long", "steps"),
        ("long", "ranks"),
        ("long", "distributions"),
        ("long", "lanes"),
        ("flame", "flame"),
        ("gate", "pairs"),
    ],
)
def test_charts_look_as_they_did(opened: Open, browser: Any, name: str, chart: str, dark: bool) -> None:
    """Much reduced, so that fonts hardly count. After a change that is meant: delete the picture, run, and look."""
    page = opened(name, dark=dark)
    box(page, chart).scroll_into_view_if_needed()
    drawn(page)
    now = "data:image/png;base64," + base64.b64encode(box(page, chart).screenshot()).decode()
    blank = browser.new_page()
    small, pixels = blank.evaluate(AS_SMALL, [now, 64, 32])
    kept = PICTURES / f"{chart}-{'dark' if dark else 'light'}.png"
    if not kept.exists():
        kept.write_bytes(base64.b64decode(small.partition(",")[2]))
        pytest.fail(f"there was no {kept.name}: look at the one that was written")
    before = "data:image/png;base64," + base64.b64encode(kept.read_bytes()).decode()
    _, expected = blank.evaluate(AS_SMALL, [before, 64, 32])
    blank.close()
    off = sum(abs(a - b) for a, b in zip(pixels, expected, strict=True)) / len(pixels)
    assert off < DIFFERENT
