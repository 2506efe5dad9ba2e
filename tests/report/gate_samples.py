"""Gates of every verdict, for tests of what is made of them."""

from __future__ import annotations

from perfdoctor.evidence.model import Missing
from perfdoctor.gate.model import Arm, Assume, GateResult, Judgement, Verdict, Why

BASE, HEAD = Arm("merge base 4f2c1a9", "/tmp/runs/base"), Arm("working tree", "/tmp/runs/head")


def step_time(verdict: Verdict, change: float, reason: str) -> Judgement:
    return Judgement(
        "step_time.core", "uncontended step", "ms", Assume.TIMED, 10.0, 10.0 * (1 + change), verdict, reason, change,
        change - 0.01, change + 0.01,
    )  # fmt: skip


SYNCS = Judgement(
    "syncs",
    "scalar reads (syncs) per step",
    "count",
    Assume.EXACT,
    9.0,
    10.0,
    Verdict.REGRESSION,
    "counted exactly",
    1.0,
)
ITEM = Judgement(
    "op:aten::item", "calls of aten::item per step", "count", Assume.EXACT, 8.0, 9.0, Verdict.REGRESSION,
    "counted exactly", 1.0,
)  # fmt: skip
SAME = Judgement(
    "op:aten::mm", "calls of aten::mm per step", "count", Assume.EXACT, 8.0, 8.0, Verdict.PASS, "same", 0.0
)
MEMORY = Judgement(
    "peak_rss_bytes", "peak memory", "bytes", Assume.TIGHT, 400e6, 401e6, Verdict.PASS, "margin 2 %", 1e6
)
UNSEEN = Judgement(
    "kernels", "kernels per step", "count", Assume.EXACT, Missing("no CUDA"), Missing("no CUDA"),
    Verdict.NOT_JUDGED, "no CUDA",
)  # fmt: skip

REGRESSION = GateResult(
    Verdict.REGRESSION,
    "the uncontended step is 6.0 % slower; 2 counters rose",
    BASE,
    HEAD,
    (step_time(Verdict.REGRESSION, 0.06, "slower, and again in fresh launches"), SYNCS, ITEM, SAME, MEMORY, UNSEEN),
    Why((("forward", 4.0, 4.6), ("backward", 5.0, 5.0)), ("aten::item +1 at train.py:12",), ("PD10.sync: reads",), ()),
    ("the working tree has changes that are not committed",),
    {"step_time.core": [0.06] * 16},
    81.0,
)
PASS = GateResult(
    Verdict.PASS, "no slowdown of 5 % or more", BASE, HEAD, (step_time(Verdict.PASS, 0.002, "no slowdown"), MEMORY)
)
DOUBT = GateResult(
    Verdict.INCONCLUSIVE, "too noisy", BASE, HEAD, (step_time(Verdict.INCONCLUSIVE, 0.02, "too noisy"), MEMORY)
)
BETTER = GateResult(
    Verdict.IMPROVEMENT, "faster", BASE, HEAD, (step_time(Verdict.IMPROVEMENT, -0.08, "faster"), MEMORY)
)
BROKEN = GateResult(Verdict.NOT_COMPARABLE, "the two arms do not do the same work: batch size 64, then 32", BASE, HEAD)
IDENTICAL = GateResult(Verdict.IDENTICAL, "both arms are the same tree", BASE, HEAD)
FAILED = GateResult(
    Verdict.FAILED,
    "working tree: the job failed with exit code 1",
    Arm("main"),
    Arm("this run"),
    notes=("see job.out", "the last line of its output: RuntimeError: told to fail"),
)
RESULTS = (REGRESSION, PASS, DOUBT, BETTER, BROKEN, IDENTICAL, FAILED)
