"""Real jobs with one illness each, found with its name and place; and the same jobs cured, which are clear.

What a machine that others use does to the figures must not matter, so only names, places and outcomes are asked.
"""

from __future__ import annotations

import timeit

import pytest
import torch
from running import JOBS, Perfdoctor

pytestmark = pytest.mark.slow

ILL = JOBS / "ill.py"
CHURN_CURE = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


def _line(text: str) -> int:
    """Of `text` in ill.py or tiny.py, which must hold it once."""
    for file in (ILL, JOBS / "tiny.py"):
        lines = [number for number, line in enumerate(file.read_text().splitlines(), 1) if text in line]
        if lines:
            (line,) = lines
            return line
    raise AssertionError(text)


def _takes_subnormals_slowly() -> bool:
    """Whether this CPU does: AMD's Zen 4 does not."""

    def took(value: float) -> float:
        numbers = torch.full((200_000,), value)
        return min(timeit.repeat(lambda: numbers * 0.5, number=5, repeat=5))

    return took(1e-39) > 4 * took(1.0)


OPPORTUNITIES = ("batch", "churn", "evaluate")
"""A choice, an allocator's defaults, and a fix that saves 5 % of the forward pass for sure."""


@pytest.mark.parametrize(
    ("name", "finding", "file", "text"),
    [
        ("workers", "PD03.too-few-workers", "ill.py", "DataLoader(Slow()"),
        ("banked", "PD03.same-result", "ill.py", "# each time"),
        ("remade", "PD03.samples-made-again", "ill.py", "# asked for again"),
        ("positioned", "PD10.same-result", "ill.py", "# in every step"),
        ("rebuild", "PD03.iterator-rebuilt", "ill.py", "next(iter(loader))"),
        ("collect", "PD04.explicit-collect", "ill.py", "gc.collect()"),
        ("batch", "PD05.batch-too-small", None, ""),
        ("double", "PD07.float64", None, ""),
        ("churn", "PD08.allocator-churn", None, ""),
        ("evaluate", "PD08.grad-in-evaluation", "ill.py", "model(inputs).mean()"),
        ("unfrozen", "PD17.gradients-without-optimizer", "ill.py", "SGD(model[1].parameters()"),
        ("undetached", "PD17.discarded-gradients", "ill.py", "# no detach"),
        ("twice", "PD10.repeated-work", "ill.py", "# once more"),
        ("traced", "PD16.traced-allocations", None, ""),
        ("counted", "PD16.mode-left-on", "ill.py", "else FlopCounterMode("),
        ("score", "PD20.evaluation-too-often", "ill.py", "scores = model(held_out)"),
        ("faded", "PD07.subnormal-numbers", "ill.py", "# faded"),
    ],
)
def test_an_ill_job(perfdoctor: Perfdoctor, name: str, finding: str, file: str | None, text: str) -> None:
    if name == "faded" and not _takes_subnormals_slowly():
        pytest.skip("this CPU computes subnormal numbers as fast as others")
    checked = perfdoctor.check_once("--steps", "20", ILL, name)
    assert finding in checked.findings, checked.stdout
    found = checked.findings[finding]
    assert found["severity"] in (("note",) if name in OPPORTUNITIES else ("error", "warning"))
    assert checked.check(finding[:4])["outcome"] == "found"
    assert found["savings"]["ceiling_ms"] >= found["savings"]["high_ms"] >= found["savings"]["low_ms"] >= 0
    assert found["fix"]["text"]
    if file is not None:
        assert found["location"]["file"].endswith(file)
        assert found["location"]["line"] == _line(text)


@pytest.mark.parametrize(
    ("name", "finding", "env"),
    [
        ("workers", "PD03.too-few-workers", {}),
        ("pairs", "PD03.too-few-workers", {}),
        ("banked", "PD03.same-result", {}),
        ("remade", "PD03.samples-made-again", {}),
        ("positioned", "PD10.same-result", {}),
        ("rebuild", "PD03.iterator-rebuilt", {}),
        ("collect", "PD04.explicit-collect", {}),
        ("batch", "PD05.batch-too-small", {}),
        ("double", "PD07.float64", {}),
        ("churn", "PD08.allocator-churn", CHURN_CURE),
        ("evaluate", "PD08.grad-in-evaluation", {}),
        ("unfrozen", "PD17.gradients-without-optimizer", {}),
        ("undetached", "PD17.discarded-gradients", {}),
        ("twice", "PD10.repeated-work", {}),
        ("traced", "PD16.traced-allocations", {}),
        ("counted", "PD16.mode-left-on", {}),
        ("score", "PD20.evaluation-too-often", {}),
        ("faded", "PD07.subnormal-numbers", {}),
    ],
)
def test_the_same_job_cured(perfdoctor: Perfdoctor, name: str, finding: str, env: dict[str, str]) -> None:
    checked = perfdoctor.check("--steps", "20", ILL, name, "cured", env=env)
    assert finding not in checked.findings
    # Where others crowd the machine out, a check may find that instead; an opportunity is no illness.
    seen = checked.check(finding[:4])
    alarms = [one["id"] for one in seen["findings"] if one["severity"] != "note"]
    assert seen["outcome"] in ("clear", "found") and (checked.contended or not alarms), checked.stdout


def test_of_two_loaders_the_slow_one_is_told(perfdoctor: Perfdoctor) -> None:
    """Their batches take 32 ms and next to nothing; training takes 30."""
    checked = perfdoctor.check_once("--steps", "30", ILL, "pairs")
    (found,) = checked.check("PD03")["findings"]
    line = _line("DataLoader(stored")
    assert (found["id"], found["location"]["line"]) == ("PD03.too-few-workers", line), checked.stdout
    assert "of `Slow` at" in found["message"] and f"ill.py:{line} (" in found["message"]
    assert found["savings"]["high_ms"] > 20
    took = {measurement["name"]: measurement["value"] for measurement in found["evidence"]}
    assert took["make_ms"] > 30, "the mean of both is half of that"


@pytest.mark.parametrize(
    ("name", "finding", "text"),
    [
        ("history", "PD15.growing-container", "losses.append(loss.detach())"),
        ("bank", "PD15.growing-tensor", "kept = torch.cat("),
        ("hooked", "PD15.growing-hooks", "model.register_forward_hook("),
        ("saves", "PD14.frequent-checkpoints", "last.pt"),
    ],
)
def test_a_job_that_keeps_or_saves_too_much(perfdoctor: Perfdoctor, name: str, finding: str, text: str) -> None:
    ill = perfdoctor.check("--steps", "1000", ILL, name)
    assert ill.findings[finding]["location"]["line"] == _line(text)
    assert finding not in perfdoctor.check("--steps", "1000", ILL, name, "cured").findings


def test_threads_that_share_a_small_model(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check("--steps", "4000", ILL, "threads")
    # An opportunity where a busy neighbour leaves the worth of it open.
    found = checked.findings["PD06.gil-bound-forwards"]
    assert (found["location"]["line"], found["location"]["function"]) == (_line("return model(inputs)"), "answer")
    assert "one batch" in found["fix"]["text"]
    # Not more than nothing: beside a busy neighbour the batch may timing as dear as the requests.
    assert found["savings"]["ceiling_ms"] >= found["savings"]["high_ms"] >= 0
    # The threads end without a word about it.
    assert "StopJob" not in checked.stderr


def test_one_thread_that_batches_for_them(perfdoctor: Perfdoctor) -> None:
    check = perfdoctor.check("--steps", "4000", ILL, "threads", "cured").check("PD06")
    assert check["outcome"] == "clear"
    assert "one thread calls the model" in check["reason"]


def test_threads_with_large_operators(perfdoctor: Perfdoctor) -> None:
    check = perfdoctor.check("--steps", "60", ILL, "kernels").check("PD06")
    assert check["outcome"] == "clear"
    assert "3 threads call a model" in check["reason"]
