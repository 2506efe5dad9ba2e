"""What every kind of gate says alike in its one sentence. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Judgement, Verdict


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: "peak memory, kernels per step and 2 more"."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def decisive(verdict: Verdict, judgements: Sequence[Judgement], most: int, worse: str = "worse") -> list[str]:
    """What made the verdict: metrics by name, then budgets, which may be about too little of something and are
    therefore named apart. `worse` says how a metric regressed."""
    metric = {Verdict.REGRESSION: worse, Verdict.IMPROVEMENT: "better"}.get(verdict, "not certain")
    budget = "outside budget" if verdict is Verdict.REGRESSION else "budget not judged"
    deciding = [j for j in judgements if j.gates and j.verdict is verdict]
    named = {
        metric: [j.label for j in deciding if not j.is_budget],
        budget: [j.label for j in deciding if j.is_budget],
    }
    return [f"{intro}: {some(labels, most)}" for intro, labels in named.items() if labels]
