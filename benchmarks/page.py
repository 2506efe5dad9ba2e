"""How fast an HTML report opens in a browser, and how fluid its charts are.

    python -m benchmarks.page

Targets: 10,000 steps under 1 s to the first paint, charts included; 50 ms a zoom. Needs chromium and the extra
`browser`.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
ZOOMS = 40

TIMED = """([chart, keys]) => {
  const box = document.querySelector(`[data-chart=${chart}] .chart-box`);
  const canvas = box.querySelector("canvas");
  const times = [];
  return new Promise((done) => {
    const next = () => {
      if (times.length === keys.length) return done(times);
      const began = performance.now();
      box.dispatchEvent(new KeyboardEvent("keydown", { key: keys[times.length], bubbles: true }));
      requestAnimationFrame(() => setTimeout(() => {
        canvas.getContext("2d").getImageData(0, 0, 1, 1);  // waits until it is drawn
        times.push(performance.now() - began);
        next();
      }));
    };
    next();
  });
}"""


def measured(page: Any, url: str) -> dict[str, float]:
    """Milliseconds from opening."""
    page.goto(url)
    page.wait_for_timeout(500)
    first = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    loaded = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    return {"first paint": page.evaluate(first), "charts drawn": page.evaluate(loaded)}


def main() -> None:
    from playwright.sync_api import sync_playwright

    sys.path[:0] = [str(TESTS / folder) for folder in ("report", "checks", "evidence")]
    import chart_samples

    from perfdoctor.report.html.page import render_html

    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        run = chart_samples.long_run(Path(scratch, "run"))
        file = Path(scratch, "report.html")
        file.write_text(render_html(chart_samples.many_ranks(), next_command="", recorded=[run.path]), encoding="utf-8")
        print(f"10,000 steps and 4,096 ranks       {file.stat().st_size / 1000:.0f} kB")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = [measured(browser.new_page(), file.as_uri()) for _ in range(5)]
        for name in opened[0]:
            print(f"{name:<33}  {statistics.median(one[name] for one in opened):.0f} ms (median of 5)")
        page = browser.new_page()
        page.goto(file.as_uri())
        for chart in ("steps", "lanes"):
            times = page.evaluate(TIMED, [chart, ["+", "+", "-", "-", "PageDown"] * (ZOOMS // 5)])
            print(f"zoom of {chart:<26} {statistics.median(times):.0f} ms, {max(times):.0f} ms at most, of {ZOOMS}")
        browser.close()


if __name__ == "__main__":
    main()
