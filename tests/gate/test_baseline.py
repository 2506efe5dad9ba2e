"""Stored baselines: what is written is read back, and what may be compared is."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import samples
from baselines import BASE, CONFIGURATION, MACHINE, TODAY, against, finding, launch, now
from verdicts import regressions

from perfdoctor.diagnosis.findings import Location
from perfdoctor.errors import PerfdoctorError
from perfdoctor.gate import fingerprint
from perfdoctor.gate.baseline import make, parse, pruned, render
from perfdoctor.gate.model import GateResult, Verdict


def verdict_of(result: GateResult, name: str) -> Verdict:
    (found,) = [j for j in result.judgements if j.name == name]
    return found.verdict


def test_the_file_is_read_back_and_has_one_metric_per_line() -> None:
    text = render(BASE)
    assert parse(text, "x") == BASE
    assert text == render(parse(text, "x"))
    assert sum('"launches"' in line for line in text.splitlines()) == len(BASE.metrics) == 4
    assert list(json.loads(text)) == sorted(json.loads(text))
    empty = replace(BASE, metrics={}, findings=(), configuration={}, machine={})
    assert parse(render(empty), "x") == empty


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "other/1"}', '{"schema": "perfdoctor.baseline/1"}', "<<<"]
)
def test_another_file_is_refused(text: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        parse(text, "perf-baseline.json")
    assert caught.value.slug == "not-a-baseline"


def test_a_newer_file_is_refused() -> None:
    with pytest.raises(PerfdoctorError) as caught:
        parse('{"schema": "perfdoctor.baseline/2"}', "x")
    assert caught.value.slug == "newer-baseline"


def test_the_same_passes_and_one_sync_more_does_not() -> None:
    assert against(now()).verdict is Verdict.PASS
    worse = against(now(launch(syncs=10), launch(syncs=10)))
    assert worse.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(worse)] == ["syncs"]
    assert "scalar reads" in worse.reason
    assert against(now(launch(syncs=10), launch(syncs=10)), syncs=1.0).verdict is Verdict.PASS


def test_another_configuration_is_not_compared() -> None:
    result = against(now(configuration={**CONFIGURATION, "batch size": "32"}))
    assert result.verdict is Verdict.NOT_COMPARABLE
    assert "batch size 64, then 32" in result.reason


def test_times_count_on_the_same_machine_only() -> None:
    slow = (launch(13.0), launch(13.1))
    assert verdict_of(against(now(*slow)), "step_time_ms") is Verdict.REGRESSION
    assert against(now(*slow)).verdict is Verdict.REGRESSION
    elsewhere = against(now(*slow, machine={**MACHINE, "cpu": "Xeon"}))
    assert elsewhere.verdict is Verdict.PASS
    assert any("another machine (cpu EPYC, then Xeon)" in note for note in elsewhere.notes)
    old = against(now(*slow), today=TODAY + timedelta(days=15))
    assert old.verdict is Verdict.PASS
    assert any("age in days is 15" in note for note in old.notes)
    few = make(TODAY, "train.py", CONFIGURATION, MACHINE, [launch()] * 3, [finding()])
    assert against(now(*slow), few).verdict is Verdict.PASS


def test_times_within_the_wide_tolerance_pass_and_half_of_the_launches_is_doubt() -> None:
    assert verdict_of(against(now(launch(11.2), launch(11.3))), "step_time_ms") is Verdict.PASS
    assert verdict_of(against(now(launch(10.0), launch(14.0))), "step_time_ms") is Verdict.INCONCLUSIVE


def test_another_torch_makes_counters_advisory() -> None:
    result = against(now(launch(syncs=10), launch(syncs=10), machine={**MACHINE, "torch": "2.14.0 cpu"}))
    assert result.verdict is not Verdict.REGRESSION
    assert any("torch 2.13 then, 2.14 now" in note for note in result.notes)
    assert against(now(launch(syncs=10), machine={**MACHINE, "torch": "2.13.1 cpu"})).verdict is Verdict.REGRESSION


def test_only_new_findings_fail() -> None:
    assert against(now()).verdict is Verdict.PASS
    result = against(now(findings=[finding(), finding("PD10.item")]))
    assert result.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(result)] == ["finding:PD10.item"]
    # The place is part of a finding; the line is not.
    moved = replace(finding(), location=Location("train.py", 99, "train"))
    assert against(now(findings=[moved])).verdict is Verdict.PASS


def test_pruning_takes_out_what_is_gone() -> None:
    both = make(TODAY, "train.py", {}, {}, [launch()], [finding(), finding("PD10.item")])
    kept, gone = pruned(both, [finding()])
    assert [known.id for known in kept.findings] == ["PD04.explicit-collect"]
    assert [known.id for known in gone] == ["PD10.item"]


def test_fingerprints_of_the_healthy_run() -> None:
    evidence = samples.healthy()
    assert fingerprint.configuration(evidence)["batch size"] == "32"
    assert fingerprint.machine(evidence)["cpu"] == "EPYC 9354"
    assert fingerprint.differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ("b 2, then 3",)
    assert "device" not in fingerprint.configuration(samples.empty())


def test_losses_that_differ_say_so() -> None:
    from counted import COUNTED

    def evidence(*losses: float, first_step: int = 10):  # type: ignore[no-untyped-def]
        return samples.with_(samples.healthy(), counters=replace(COUNTED, losses=losses, first_step=first_step))

    assert fingerprint.losses_differ(evidence(2.3, 2.2), evidence(2.3, 2.2000001)) == ""
    assert "loss 2.2, then 2.3" in fingerprint.losses_differ(evidence(2.3, 2.2), evidence(2.3, 2.3))
    assert fingerprint.losses_differ(evidence(2.3), evidence(float("nan"))) != ""
    assert fingerprint.losses_differ(evidence(float("nan")), evidence(float("nan"))) == ""
    assert fingerprint.losses_differ(evidence(2.3), evidence(5.0, first_step=3)) == ""
    assert fingerprint.losses_differ(evidence(2.3), samples.empty()) == ""


def test_the_real_file_of_a_repository_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "perf-baseline.json"
    path.write_text(render(BASE))
    assert render(parse(path.read_text(), str(path))) == path.read_text()


def test_times_that_vary_are_given_three_times_their_spread() -> None:
    """Launches of 9 to 11 ms have a spread of a tenth: a quarter more is no news."""
    loud = make(TODAY, "train.py", CONFIGURATION, MACHINE, [launch(9.0 + 2.0 * (i % 2)) for i in range(8)], [finding()])
    slower = now(launch(12.5), launch(12.5))
    assert verdict_of(against(slower, loud), "step_time_ms") is Verdict.PASS
    assert verdict_of(against(slower), "step_time_ms") is Verdict.REGRESSION
