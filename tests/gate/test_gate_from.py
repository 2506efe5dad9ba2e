"""A verdict on what is stored: recordings, baselines and reports, without running anything."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import samples
from baselines import BASE, finding, launch
from counted import COUNTED
from diagnosis_samples import found_by
from verdicts import regressions

from perfdoctor.commands.baseline import read_arm
from perfdoctor.config.rules import Budget
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.errors import PerfdoctorError
from perfdoctor.evidence.model import Evidence
from perfdoctor.gate.baseline import Baseline, make, render
from perfdoctor.gate.model import GateResult, Verdict
from perfdoctor.gate.stored import StoredArm, judge
from perfdoctor.report.jsonreport import render_json

DEMO = Path(__file__).parent.parent / "recordings" / "demo"
CONFIGURATION, MACHINE = dict(BASE.configuration), dict(BASE.machine)


def baseline(step_ms: float = 10.0, syncs: float = 9, launches: int = 8, **changes: Any) -> Baseline:
    made = make(
        BASE.written, "train.py", CONFIGURATION, MACHINE,
        [launch(step_ms + 0.01 * i, syncs) for i in range(launches)], [finding()],
    )  # fmt: skip
    return replace(made, **changes)


def recording(evidence: Evidence, *findings: Any) -> StoredArm:
    """As `read_arm` makes it of a directory."""
    from perfdoctor.gate import fingerprint
    from perfdoctor.gate.metrics import metrics

    diagnosis = Diagnosis(evidence, found_by(*findings), None)
    content = make(
        BASE.written, "run", fingerprint.configuration(evidence), fingerprint.machine(evidence),
        [metrics(evidence)], findings,
    )  # fmt: skip
    return StoredArm("run", content, (diagnosis,))


def decide(before: StoredArm, after: StoredArm, config: Config | None = None, **options: Any) -> GateResult:
    return judge(before, after, config or Config(), today=after.content.written, **options)


def of(content: Baseline) -> StoredArm:
    return StoredArm("file.json", content)


def counted(**changes: Any) -> Evidence:
    return samples.with_(samples.healthy(), counters=replace(COUNTED, **changes))


def test_two_baselines_of_the_same_pass_and_one_call_more_fails() -> None:
    assert decide(of(baseline()), of(baseline())).verdict is Verdict.PASS
    worse = decide(of(baseline()), of(baseline(syncs=10)))
    assert worse.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(worse)] == ["syncs"]


def test_times_count_by_the_rules_of_a_stored_baseline() -> None:
    slower = decide(of(baseline()), of(baseline(step_ms=12.5)))
    assert slower.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(slower)] == ["step_time_ms"]
    few = decide(of(baseline()), of(baseline(step_ms=12.5, launches=1)))
    assert few.verdict is Verdict.PASS
    assert any("holds one launch, 2 are needed" in note for note in few.notes)
    elsewhere = decide(of(baseline()), of(baseline(step_ms=12.5, machine={**MACHINE, "cpu": "Xeon"})))
    assert elsewhere.verdict is Verdict.PASS
    assert any("another machine" in note for note in elsewhere.notes)


def test_another_configuration_is_not_compared() -> None:
    other = baseline(configuration={**CONFIGURATION, "batch size": "32"})
    result = decide(of(baseline()), of(other))
    assert result.verdict is Verdict.NOT_COMPARABLE
    assert "batch size 64, then 32" in result.reason


def test_recordings_are_compared_and_explained() -> None:
    more = recording(counted(syncs=7.0, calls=(("aten::item", 7.0),)))
    worse = decide(recording(counted()), more)
    assert worse.verdict is Verdict.REGRESSION
    assert {j.name for j in regressions(worse)} == {"syncs", "op:aten::item"}
    assert worse.why is not None
    assert "aten::item +1 per step" in worse.why.counters


def test_another_loss_is_refused_unless_allowed() -> None:
    before, after = recording(counted()), recording(counted(losses=(2.5,)))
    refused = decide(before, after)
    assert refused.verdict is Verdict.NOT_COMPARABLE
    assert "--allow-loss-change" in refused.reason
    assert decide(before, after, allow_loss_change=True).verdict is Verdict.PASS


def test_memory_alone_is_too_little_for_a_pass() -> None:
    """Recordings of `check` have no counters, and one launch says nothing about times."""
    plain = recording(samples.healthy())
    result = decide(plain, plain)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "neither counters nor times" in result.reason
    mixed = decide(plain, recording(counted()))
    assert mixed.verdict is Verdict.INCONCLUSIVE
    assert any("memory is shown only" in note for note in mixed.notes)


def test_new_findings_fail_only_when_asked_for() -> None:
    before, after = recording(counted()), recording(counted(), finding("PD10.item"))
    assert decide(before, after).verdict is Verdict.PASS
    assert [j.name for j in regressions(decide(before, after, fail_on="error"))] == ["finding:PD10.item"]
    assert decide(after, after, fail_on="error").verdict is Verdict.PASS
    unknown = decide(of(baseline()), of(baseline()), fail_on="error")
    assert any("how grave" in note for note in unknown.notes)


def test_budgets_count_here_too() -> None:
    config = Config(budgets=(Budget("syncs", "error", max=5), Budget("PD04", "error")))
    broken = decide(of(baseline()), of(baseline()), config)
    assert broken.verdict is Verdict.REGRESSION
    assert broken.reason == "outside budget: scalar reads"


def test_a_report_holds_what_is_compared(tmp_path: Path) -> None:
    diagnosis = Diagnosis(counted(allocated_bytes=12_345_678_901.0), (), None)
    file = tmp_path / "report.json"
    file.write_text(render_json(diagnosis))
    arm = read_arm(file, Config())
    assert arm.content.metrics["allocated_bytes"].launches == (12_345_678_901,)
    assert arm.content.configuration["batch size"] == "32"
    assert decide(arm, arm).verdict is Verdict.PASS
    old = json.loads(file.read_text())
    del old["launch"]
    file.write_text(json.dumps(old))
    with pytest.raises(PerfdoctorError) as caught:
        read_arm(file, Config())
    assert caught.value.slug == "report-without-launch"


def test_every_kind_of_file_is_read_or_refused_with_advice(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(render(baseline()))
    assert read_arm(file, Config()).content == baseline()
    assert read_arm(DEMO, Config()).diagnoses
    for text, slug in (
        ('{"schema": "perfdoctor.gate/1"}', "from-gate"),
        ("[]", "not-a-baseline"),
        ("no json", "not-a-baseline"),
    ):
        file.write_text(text)
        with pytest.raises(PerfdoctorError) as caught:
            read_arm(file, Config())
        assert caught.value.slug == slug
    with pytest.raises(PerfdoctorError) as caught:
        read_arm(tmp_path / "none.json", Config())
    assert caught.value.slug == "from-unreadable"


def test_the_command_takes_two_and_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from perfdoctor import cli

    monkeypatch.chdir(tmp_path)
    for name, syncs in (("a.json", 9), ("b.json", 10)):
        Path(name).write_text(render(baseline(syncs=syncs)))

    def code(*words: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["gate", *words])
        return int(ended.value.code or 0)  # type: ignore[arg-type]

    assert code("--from", "a.json", "b.json", "--output", "concise") == 1
    assert "scalar reads" in capsys.readouterr().out.lower()
    assert code("--from", "a.json", "a.json") == 0
    assert code("--from", "a.json", "b.json", "train.py") == 2
    assert "takes no script" in capsys.readouterr().err
    assert code("--from", "a.json", "b.json", "--against", "main") == 2
