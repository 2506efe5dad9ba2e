"""Launches of a job, a baseline made of some, and what is said of others beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

import samples
from diagnosis_samples import found_by

from perfdoctor.config.gate import GateSettings
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Location, Savings, Severity
from perfdoctor.evidence.model import Missing
from perfdoctor.gate.baseline import Baseline, make
from perfdoctor.gate.metrics import Metrics
from perfdoctor.gate.model import Assume, GateResult, Metric
from perfdoctor.gate.stored import StoredArm, judge

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


def now(
    *launches: Metrics,
    configuration: Mapping[str, str] = CONFIGURATION,
    machine: Mapping[str, str] = MACHINE,
    findings: Sequence[Finding] = (finding(),),
) -> StoredArm:
    given = launches or (launch(), launch())
    content = make(TODAY, "train.py", dict(configuration), dict(machine), given, findings)
    diagnosis = Diagnosis(samples.empty(), found_by(*findings), None)
    return StoredArm("now", content, (diagnosis,), launches=given)


def against(given: StoredArm, base: Baseline = BASE, today: date = TODAY, **tolerances: float) -> GateResult:
    config = Config(gate=GateSettings(counter_tolerance=tolerances))
    return judge(StoredArm("perf-baseline.json", base), given, config, today=today, fail_on="error")
