"""One job, judged as it runs and by a trace of it: the same causes where a trace can hold them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from running import JOBS, Perfdoctor, Said

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

HELD = ("PD03", "PD19")
"""Checks of which a trace of the CPU can hold the evidence."""


def _alarmed(report: Mapping[str, Any]) -> set[str]:
    return {
        check["code"]
        for check in report["checks"]
        for finding in check["findings"]
        if finding["severity"] != "note" and check["code"] in HELD
    }


def _waited_ms(report: Mapping[str, Any]) -> float:
    return float(report["anatomy"]["parts"]["input_wait"])


@pytest.mark.parametrize(("delay", "found"), [("0.03", {"PD03"}), ("0", set())])
def test_a_run_and_a_trace_of_it_alarm_for_the_same(
    perfdoctor: Perfdoctor, said: Said, tmp_path: Path, delay: str, found: set[str]
) -> None:
    words = [str(JOBS / "profiled.py"), "--delay", delay]
    live = perfdoctor.check_once(*words).json
    trace = tmp_path / "trace.json"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words, "--trace", str(trace)], check=True, timeout=120, env=environment)
    report = tmp_path / "report.json"
    assert said("report", trace, "--output", f"json:{report}").code in (0, 1)
    seen = json.loads(report.read_text())
    assert _alarmed(live) == _alarmed(seen) == found
    # Recording makes operators longer, so shares differ, but not what the data set sleeps.
    if found:
        assert _waited_ms(seen) == pytest.approx(_waited_ms(live), rel=0.5)
