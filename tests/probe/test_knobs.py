"""Lines that set the number of threads or switch oneDNN off are noted, and do what they did."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("style", "threads", "onednn"),
    [("assigned", 11, 12), ("called", None, 16), ("untouched", None, None)],
)
def test_the_line_is_noted(observe, style, threads, onednn):
    seen = observe("knobs.py", style)
    assert seen.probed.stdout == seen.bare.stdout
    seen.healthy()
    (process,) = seen.processes
    lines = [
        process.sites[site].line if site in process.sites else None
        for site in (process.settings.threads_site, process.settings.onednn_site)
    ]
    assert lines == [threads, onednn]
