"""Launches of a job, a baseline made of some, and what is said of others beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Location, Savings, Severity
from perfdoctor.evidence.model import Missing
from perfdoctor.gate.baseline import Baseline, Now, judge, make
from perfdoctor.gate.compare import Tolerances
from perfdoctor.gate.metrics import Metrics
from perfdoctor.gate.model import Assume, GateResult, Metric, Side

TODAY = date(2026, 11, 21)
CONFIGURATION = {"batch size": "64", "loader workers": "0"}
MACHINE = {"cpu": "EPYC", "torch": "2.13.0 cpu"}


def launch(step_ms: float = 10.0, syncs: float = 9, rss: float = 400e6) -> Metrics:
    found = [
        Metric("step_time_ms", "ms", Assume.TIMED, step_ms, "steady step"),
        Metric("data_wait_share", "share", Assume.SHARE, 0.1, "wait for data"),
        Metric("syncs", "count", Assume.EXACT, syncs, "scalar reads"),
        Metric("peak_rss_bytes", "bytes", Assume.TIGHT, rss, "peak memory"),
        Metric("kernels", "count", Assume.EXACT, Missing("no CUDA"), "kernels"),
    ]
    return {metric.name: metric for metric in found}


def finding(name: str = "PD04.explicit-collect", file: str = "train.py") -> Finding:
    return Finding(
        name, Severity.ERROR, Confidence.HIGH, "it costs", (), Fix("stop it"), Savings(1, 1, 1, 0.1, "measured"),
        Location(file, 3, "train"),
    )  # fmt: skip


BASE = make(TODAY, "train.py", CONFIGURATION, MACHINE, [launch(10 + 0.01 * i) for i in range(8)], [finding()])


def now(*launches: Metrics, **changes: Any) -> Now:
    given = Now(TODAY, Side("now"), CONFIGURATION, MACHINE, launches or (launch(), launch()), [finding()])
    return replace(given, **changes)


def against(given: Now, base: Baseline = BASE, **tolerances: float) -> GateResult:
    return judge(base, "perf-baseline.json", given, Tolerances(tolerances), max_age_days=14)
