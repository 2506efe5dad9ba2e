"""Counters exactly, memory with margins."""

from __future__ import annotations

import pytest

from perfdoctor.evidence.model import Missing
from perfdoctor.gate.compare import compare, compare_pairs
from perfdoctor.gate.model import Assume, Judgement, Metric, Verdict, overall

GIB = 1 << 30


def launch(**values: float | Missing) -> dict[str, Metric]:
    tight = ("peak_rss_bytes", "torch_peak_bytes")
    return {
        name: Metric(name, "count", Assume.TIGHT if name in tight else Assume.EXACT, value)
        for name, value in values.items()
    }


def one(before: list[dict[str, Metric]], after: list[dict[str, Metric]], **allowed: float) -> Judgement:
    (found,) = compare(before, after, allowed)
    return found


def test_one_more_is_a_regression_and_its_size_is_said() -> None:
    found = one([launch(syncs=9.0)] * 2, [launch(syncs=10.0)] * 2)
    assert found.verdict is Verdict.REGRESSION
    assert found.change == 1


def test_the_same_passes_and_fewer_is_an_improvement() -> None:
    assert one([launch(syncs=9.0)] * 2, [launch(syncs=9.0)] * 2).verdict is Verdict.PASS
    assert one([launch(syncs=9.0)] * 2, [launch(syncs=1.0)] * 2).verdict is Verdict.IMPROVEMENT


def test_a_tolerance_allows_for_more() -> None:
    assert one([launch(syncs=9.0)], [launch(syncs=10.0)], syncs=1.0).verdict is Verdict.PASS
    assert one([launch(syncs=9.0)], [launch(syncs=11.0)], syncs=1.0).verdict is Verdict.REGRESSION


def test_a_job_that_does_much_less_is_not_compared() -> None:
    assert one([launch(aten_ops=200.0)], [launch(aten_ops=6.0)]).verdict is Verdict.NOT_COMPARABLE
    assert one([launch(aten_ops=200.0)], [launch(aten_ops=170.0)]).verdict is Verdict.IMPROVEMENT


def test_a_counter_that_differs_between_launches_is_not_exact() -> None:
    found = one([launch(gc=9.0), launch(gc=11.0)], [launch(gc=10.0), launch(gc=11.0)])
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "not exact" in found.reason
    assert one([launch(gc=9.0), launch(gc=11.0)], [launch(gc=20.0), launch(gc=21.0)]).verdict is Verdict.REGRESSION


@pytest.mark.parametrize(
    ("mebibytes", "verdict"), [(16, Verdict.PASS), (30, Verdict.REGRESSION), (-30, Verdict.IMPROVEMENT)]
)
def test_memory_has_a_margin(mebibytes: int, verdict: Verdict) -> None:
    before, after = GIB, GIB + (mebibytes << 20)
    assert one([launch(peak_rss_bytes=before)] * 3, [launch(peak_rss_bytes=after)] * 3).verdict is verdict


@pytest.mark.parametrize(("mebibytes", "verdict"), [(15, Verdict.PASS), (17, Verdict.REGRESSION)])
def test_a_small_job_may_grow_by_some_mebibytes_however_small_it_was(mebibytes: int, verdict: Verdict) -> None:
    before, after = 50 << 20, (50 + mebibytes) << 20
    assert one([launch(peak_rss_bytes=before)] * 3, [launch(peak_rss_bytes=after)] * 3).verdict is verdict


def test_what_one_arm_lacks_is_not_judged_and_the_reason_is_said() -> None:
    found = one([launch(syncs=Missing("no window"))], [launch(syncs=9.0)])
    assert found.verdict is Verdict.NOT_JUDGED
    assert "before: no window" in found.reason


def test_an_operator_that_is_new_was_called_never_before() -> None:
    before, after = [launch(aten_ops=9.0)], [{**launch(aten_ops=10.0), **launch(**{"op:aten::clone": 1.0})}]
    new = {j.name: j for j in compare(before, after)}["op:aten::clone"]
    assert (new.before, new.after, new.verdict) == (0.0, 1.0, Verdict.REGRESSION)


def test_an_operator_that_nobody_looked_for_was_not_called_never() -> None:
    before = [launch(aten_ops=Missing("no window"))]
    after = [{**launch(aten_ops=10.0), **launch(**{"op:aten::clone": 1.0})}]
    new = {j.name: j for j in compare(before, after)}["op:aten::clone"]
    assert isinstance(new.before, Missing)
    assert new.verdict is Verdict.NOT_JUDGED


@pytest.mark.parametrize(
    ("pairs", "allowed", "verdict"),
    [
        ([(10, 10), (12, 12)], 0, Verdict.PASS),
        ([(10, 11), (12, 13)], 0, Verdict.REGRESSION),
        ([(10, 11), (12, 13)], 1, Verdict.PASS),
        ([(10, 9), (12, 11)], 0, Verdict.IMPROVEMENT),
        ([(10, 10), (10, 10.5)], 0, Verdict.PASS),  # not all alike: within the margin of what is tight
        ([(10, 15), (10, 16)], 0, Verdict.REGRESSION),
        ([(10, 9), (16, 20), (9, 14)], 0, Verdict.INCONCLUSIVE),
    ],
)
def test_pairs_are_exact_where_all_agree(pairs: list[tuple[float, float]], allowed: float, verdict: Verdict) -> None:
    metric = Metric("gc_collections_gen0", "count", Assume.TIGHT, 0.0)
    found = compare_pairs(metric, pairs * 2, allowed)
    assert found.verdict is verdict
    assert ("not exact" in found.reason) == (len({after - before for before, after in pairs}) > 1)


def test_one_collection_more_in_few_pairs_is_chance() -> None:
    metric = Metric("gc_collections_gen0", "count", Assume.TIGHT, 0.0)
    few = compare_pairs(metric, [(45.5, 45.8)] * 3)
    assert few.verdict is Verdict.PASS
    assert "too few pairs" in few.reason
    assert compare_pairs(metric, [(45.5, 45.8)] * 4).verdict is Verdict.REGRESSION
    assert compare_pairs(metric, [(1.0, 45.8)]).verdict is Verdict.REGRESSION


def test_nothing_judged_is_inconclusive_and_the_gravest_wins() -> None:
    assert overall([]) is Verdict.INCONCLUSIVE
    worse = one([launch(syncs=1.0)], [launch(syncs=2.0)])
    fine = one([launch(syncs=1.0)], [launch(syncs=1.0)])
    broken = one([launch(aten_ops=100.0)], [launch(aten_ops=1.0)])
    assert overall([fine, worse]) is Verdict.REGRESSION
    assert overall([fine, worse, broken]) is Verdict.NOT_COMPARABLE
