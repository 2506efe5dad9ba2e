"""Operators for which others make the same numbers in less time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.equivalents import FIRST_LINE, otherwise
from perfdoctor.checks.cpu_ops import CHECK, examine
from samples import HOT_LINES, healthy, ids, is_clear, only, with_

from perfdoctor.diagnosis.findings import Finding, Part, Severity
from perfdoctor.evidence.model import (
    EpochStarts,
    Evidence,
    GrowingTensor,
    Missing,
    Parts,
    Site,
    StepGrowth,
    TrainerOption,
    Trend,
)

KINDS = {
    "order": "PD10.product-order",
    "one-hot": "PD10.empty-product",
    "one-hot-sum": "PD10.picked-by-product",
    "diagonal": "PD10.empty-product",
    "sparse": "PD10.empty-product",
    "blocks": "PD10.block-diagonal",
    "by-rows": "PD10.sparse-by-coordinates",
    "transform": "PD10.transform-length",
    "real-transform": "PD10.complex-transform",
    "modulated": "PD10.kernels-by-sample",
    "messages": "PD10.scattered-sums",
    "integers": "PD10.integer-product",
    "unfolded": "PD10.unfolded-convolution",
    "indexed": "PD10.picked-by-index",
    **dict.fromkeys(("layer-norm", "gelu", "silu", "softmax", "log-softmax"), "PD10.function-by-hand"),
    "product": "PD10.broadcast-then-sum",
    "distance": "PD10.broadcast-then-sum",
    "pairs": "PD10.broadcast-then-sum",
    "trace": "PD10.product-order",
    "ignored": "PD10.ignored-scores",
    "picked": "PD10.ignored-scores",
    "enlarged": "PD10.enlarged-first",
    "strided": "PD10.stride-afterwards",
    "edges": "PD10.layer-by-edge",
    "cut": "PD10.picked-then-cut",
    "grown": "PD10.grown-by-cat",
    "rebuilt": "PD10.rebuilt-by-cat",
    "written": "PD10.written-by-parts",
    "taken-apart": "PD10.taken-apart",
    "copied": "PD10.needless-copy",
    "columns": "PD10.column-lookup",
    "diagonal-factor": "PD10.diagonal-covariance",
    "diagonal-solve": "PD10.diagonal-covariance",
    "einsum": "PD10.einsum-order",
    "by-kind": "PD10.weights-by-row",
    "attended": "PD10.masked-to-groups",
    "inverse": "PD10.inverse-then-product",
    "triangular-determinant": "PD10.triangular-matrices",
    "triangular-inverse": "PD10.triangular-matrices",
    "penalty": "PD10.penalty-by-hand",
    "shuffled": "PD10.whole-shuffle",
    "chosen": "PD10.whole-shuffle",
    "top": "PD10.whole-sort",
    "rank": "PD10.whole-sort",
    "second-sort": "PD10.whole-sort",
}


def _found(evidence: Evidence) -> Finding:
    return only(examine(evidence, CHECK.limits))


@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_each_kind_is_told_with_its_line_and_what_to_write_instead(kind: str, expected: str) -> None:
    finding = _found(otherwise(kind))
    is_ill = expected not in ("PD10.function-by-hand", "PD10.picked-by-index")  # nothing is wrong with those
    assert finding.id == expected and finding.severity is (Severity.ERROR if is_ill else Severity.NOTE)
    assert finding.location is not None and finding.location.line == FIRST_LINE.line
    assert finding.fix.code and finding.fix.risk
    # 10 ms as it is, 1 ms the other way.
    assert finding.savings.low_ms == pytest.approx(0.85 * 10.0 - 1.5 * 1.0)
    most = _backward_ms() if kind == "taken-apart" else 10.0
    assert finding.savings.high_ms == pytest.approx(most), "never more than it takes"


def _backward_ms() -> float:
    step = healthy().step
    assert not isinstance(step, Missing)
    return step.parts.backward


def test_a_function_of_a_library_lies_where_it_is_asked_for() -> None:
    asked = Site("train.py", 90, "build_model")
    run = with_(otherwise("gelu"), job__options=(TrainerOption("activation_function", asked),))
    assert _line(run) == FIRST_LINE.line, "the job's own GELU"
    called = tuple(replace(one, at=replace(one.at, via="transformers/trainer.py:train")) for one in run.equivalents)  # type: ignore[union-attr]
    assert _line(with_(run, equivalents=called)) == 90
    assert _line(with_(run, equivalents=called, job__options=())) == FIRST_LINE.line


def _line(evidence: Evidence) -> int:
    place = _found(evidence).location
    assert place is not None
    return place.line


@pytest.mark.parametrize(
    ("at", "shape", "extra_ms"),
    [(FIRST_LINE, (256, 256, 64), 8.0), (Site("train.py", 9, "main"), (256, 256, 64), 0.0), (FIRST_LINE, (8, 8), 0.0)],
    ids=["at the line", "elsewhere", "for other numbers"],
)
def test_page_faults_for_what_need_not_be_made_go_with_it(at: Site, shape: tuple[int, ...], extra_ms: float) -> None:
    line = replace(HOT_LINES[1], site=at, part="forward", faults_per_step=8192.0)
    evidence = otherwise("distance", shape=shape)
    faulted = with_(evidence, hot_lines=(line,), memory__minor_faults=8000.0, machine__page_fault_ns=1000.0)
    saved = _found(faulted).savings
    assert saved.low_ms == pytest.approx(0.85 * 10.0 + 0.25 * extra_ms - 1.5)
    assert saved.high_ms == pytest.approx(min(0.75 * extra_ms + 1.15 * 10.0 - 0.9, 10.0 + extra_ms))


def test_kinds_have_texts_of_their_own() -> None:
    findings = [_found(otherwise(kind)) for kind in KINDS]
    assert len({finding.message for finding in findings}) == len(KINDS)
    assert len({finding.fix.text for finding in findings}) == len(KINDS) - 2, (
        "the two of diagonal matrices share one, and those that join parts"
    )


@pytest.mark.parametrize(("now_ms", "count"), [(0.9, 0), (1.6, 1)])
def test_it_counts_from_a_twentieth_of_the_step_on(now_ms: float, count: int) -> None:
    evidence = otherwise(forward_ms=now_ms, backward_ms=0.0, other_forward_ms=0.1, other_backward_ms=0.0)
    assert len(ids(examine(evidence, CHECK.limits))) == count


def _on_two_lines(kind: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> Evidence:
    """The second is half as dear."""
    evidence = otherwise(kind)
    assert not isinstance(evidence.equivalents, Missing)
    (one,) = evidence.equivalents
    later = replace(one, at=replace(one.at, line=one.at.line + 9), forward_ms=one.forward_ms / 2, shape=shapes[1])
    return with_(evidence, equivalents=(replace(one, shape=shapes[0]), later))


def test_one_length_is_one_choice_however_many_lines_transform_it() -> None:
    alone, both = _found(otherwise("transform")), _found(_on_two_lines("transform", ((15999,), (15999,))))
    assert both.location is not None and both.location.line == FIRST_LINE.line
    assert both.savings.low_ms > 1.5 * alone.savings.low_ms
    assert len(ids(examine(_on_two_lines("transform", ((15999,), (601,))), CHECK.limits))) == 2
    assert len(ids(examine(_on_two_lines("one-hot", ((15999,), (15999,))), CHECK.limits))) == 2


def test_half_of_a_spectrum_is_told_with_what_comes_back_of_it() -> None:
    assert is_clear(examine(otherwise("half-transform"), CHECK.limits)), "it may be needed in whole"
    there = _on_two_lines("half-transform", ((32, 1024), (8, 1024)))
    back = otherwise("real-transform")
    assert not isinstance(there.equivalents, Missing) and not isinstance(back.equivalents, Missing)
    both = _found(with_(back, equivalents=(*there.equivalents, *back.equivalents)))
    assert both.id == "PD10.complex-transform"
    assert both.savings.low_ms > 2 * _found(back).savings.low_ms


def test_parts_that_were_timed_apart_may_take_twice_as_long_in_the_job() -> None:
    times = {"forward_ms": 0.0, "backward_ms": 3.0, "other_forward_ms": 0.0, "other_backward_ms": 0.2}
    watched, apart = _found(otherwise("written", **times)), _found(otherwise("taken-apart", **times))
    assert watched.savings.high_ms == pytest.approx(3.0), "no more than it took"
    assert apart.savings.high_ms == pytest.approx(2.2 * 3.0 - 0.9 * 0.2)


def test_a_way_that_is_hardly_faster_is_none() -> None:
    assert is_clear(examine(otherwise(other_forward_ms=4.0, other_backward_ms=6.0), CHECK.limits))


def test_nothing_is_told_where_nobody_looked() -> None:
    assert is_clear(examine(with_(healthy(), equivalents=Missing("not reached")), CHECK.limits))


def test_what_an_evaluation_does_the_long_way_is_told_by_how_often_that_is() -> None:
    (one,) = otherwise("rank").equivalents  # type: ignore[misc]
    starts = EpochStarts((), (), (one,), 0, every_steps=50, ms=800.0, regular=False)
    evidence = with_(healthy(), epoch_starts=starts, step__irregular_ms=16.0)
    finding = _found(evidence)
    assert finding.id == "PD10.whole-sort" and finding.savings.part is Part.EPOCH
    assert finding.message.endswith("per step ({cost_share}), all of it in one step of {every}")
    assert {one.name: one.value for one in finding.evidence}["times"] == 2.0 * 50
    assert is_clear(examine(with_(evidence, step__irregular_ms=800.0), CHECK.limits)), "of all the time it is little"
    both = with_(evidence, equivalents=(one,))
    assert [found.savings.part for found in examine(both, CHECK.limits).findings] == [Part.COMPUTE], "told once"


@pytest.mark.parametrize(("is_gradual", "count"), [(True, 0), (False, 1)])
def test_a_memory_that_makes_steps_longer_is_told_as_what_grows(is_gradual: bool, count: int) -> None:
    bank = GrowingTensor("memory.seen", 4_000_000, 16_000, FIRST_LINE)
    growth = StepGrowth(Trend(200, 12.0, 15.0, 0.2, 0.3, is_gradual, Parts(), 0.0), tensors=(bank,))
    assert len(examine(with_(otherwise("rebuilt"), growth=growth), CHECK.limits).findings) == count
