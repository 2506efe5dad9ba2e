"""The commands around the gate, without launching anything: options, exit codes, stored baselines, diff."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import samples
from baselines import finding
from counted import COUNTED
from diagnosis_samples import found_by
from verdicts import regressions

from perfdoctor import cli
from perfdoctor.commands import baseline as stored
from perfdoctor.commands import diff, gate
from perfdoctor.commands.budgets import keep_budgets, needs_counters, require_known_budgets
from perfdoctor.commands.check import Settings
from perfdoctor.commands.gate import Options, exit_code, with_options
from perfdoctor.commands.selftest import TRIALS, Trial, problem_of
from perfdoctor.commands.typed_job import TypedJob
from perfdoctor.config.gate import GateSettings
from perfdoctor.config.rules import Budget
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.gate.failure import JobFailedError
from perfdoctor.gate.model import Arm, GateResult, Verdict
from perfdoctor.launch.command import Command
from perfdoctor.recording.directory import RunDirectory

DEMO = Path(__file__).parent.parent / "recordings" / "demo"
COMMAND = Command(("python", "train.py"), "train")
TODAY = date(2026, 11, 21)


def result(verdict: Verdict, fail_on_doubt: bool = True) -> GateResult:
    return GateResult(verdict, "because", Arm("a"), Arm("b"), fail_on_doubt=fail_on_doubt)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict.PASS, 0),
        (Verdict.IMPROVEMENT, 0),
        (Verdict.IDENTICAL, 0),
        (Verdict.REGRESSION, 1),
        (Verdict.INCONCLUSIVE, 3),
        (Verdict.NOT_COMPARABLE, 3),
        (Verdict.FAILED, 4),
    ],
)
def test_exit_codes(verdict: Verdict, code: int) -> None:
    assert int(exit_code(result(verdict))) == code


def test_doubt_can_be_let_through_and_nothing_else() -> None:
    assert exit_code(result(Verdict.INCONCLUSIVE, fail_on_doubt=False)) is Exit.OK
    assert exit_code(result(Verdict.NOT_COMPARABLE, fail_on_doubt=False)) is Exit.NOT_MEASURABLE
    assert exit_code(result(Verdict.REGRESSION, fail_on_doubt=False)) is Exit.FINDINGS


def test_options_lie_over_the_settings() -> None:
    given = GateSettings(tolerance=0.1, counter_tolerance={"syncs": 1.0})
    assert with_options(given, {"tolerance": None, "setup": None}, ()) == given
    options = {
        "tolerance": "8%",
        "time-budget": "90s",
        "on-inconclusive": "warn",
        "schedule": "abba",
        "control": True,
        "steady-memory": False,
        "setup": "make",
        "max-age": 3,
    }
    found = with_options(given, options, ("allocations=2",))
    allowed = {"syncs": 1.0, "allocations": 2.0}
    assert found == GateSettings(0.08, 90, "warn", "abba", "on", "off", "make", 3, allowed)


@pytest.mark.parametrize(
    ("options", "counters"),
    [
        ({"tolerance": "much"}, ()),
        ({"time-budget": "-1"}, ()),
        ({"on-inconclusive": "ignore"}, ()),
        ({"schedule": "both"}, ()),
        ({}, ("syncs",)),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], counters: tuple[str, ...]) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        with_options(GateSettings(), options, counters)
    assert caught.value.slug == "config-wrong-value"
    assert caught.value.message.startswith("invalid --")


def test_a_budget_on_nothing_is_refused_with_the_nearest_name() -> None:
    known = (Budget("syncs", "error", 3), Budget("op:aten::mm", "error", max=1), Budget("PD04", "warn"))
    require_known_budgets(Config(budgets=known))
    for unknown in (Budget("sync", "error", max=1), Budget("PD99", "error")):
        with pytest.raises(PerfdoctorError, match=f"`assert.{unknown.name}`") as caught:
            require_known_budgets(Config(budgets=(unknown,)))
        assert caught.value.slug == "config-unknown-metric"
    with pytest.raises(PerfdoctorError) as caught:
        require_known_budgets(Config(budgets=(Budget("sync", "error", 3),)))
    assert "`syncs`" in caught.value.message
    for wrong in (Budget("syncs", "error"), Budget("PD04", "error", 3)):
        with pytest.raises(PerfdoctorError, match=f"assert.{wrong.name}") as caught:
            require_known_budgets(Config(budgets=(wrong,)))
        assert caught.value.slug == "config-wrong-budget"
    with pytest.raises(PerfdoctorError):
        require_known_budgets(Config(gate=GateSettings(counter_tolerance={"sync": 1.0})))


def test_budgets_count_in_every_judged_run(capsys: pytest.CaptureFixture[str]) -> None:
    diagnosis = Diagnosis(samples.with_(samples.healthy(), counters=COUNTED), (), None)

    def code(*budgets: Budget) -> int:
        return int(keep_budgets(diagnosis, Config(budgets=budgets)))

    assert code(Budget("syncs", "error", max=6)) == 0
    assert capsys.readouterr().err == ""
    assert code(Budget("syncs", "error", max=5)) == 1
    assert "error: Scalar reads (syncs) per step: 6; budget: at most 5" in capsys.readouterr().err
    assert code(Budget("syncs", "warn", max=5)) == 0
    assert "warning:" in capsys.readouterr().err
    assert code(Budget("kernels", "error", max=5)) == 3
    assert needs_counters([Budget("op:aten::mm", "error", max=1)])
    assert not needs_counters([Budget("syncs", "off", max=1), Budget("data_wait_share", "error", max=1)])


VARIABLES = {
    "MODULE": "train", "AGAINST": "main", "BASELINE": "b.json", "FROM": "a.json b.json", "MERGE_BASE": "0",
    "TOLERANCE": "8%", "TIME_BUDGET": "1m", "ON_INCONCLUSIVE": "warn", "SCHEDULE": "abba", "CONTROL": "1",
    "SETUP": "make", "ALLOW_LOSS_CHANGE": "1", "COUNTER_TOLERANCE": "syncs=1", "MAX_AGE": "3", "LAUNCHES": "5",
    "SELF_TEST": "1", "PYTHON": "python3", "PATIENCE": "9", "OUTPUT": "json", "CONFIG": "c.toml",
    "FAIL_ON": "warning", "RUNS": "runs", "VERBOSE": "1", "STEADY_MEMORY": "1",
}  # fmt: skip


def options_with(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Options:
    """What `perfdoctor gate` is asked for with these variables set and no option typed."""
    seen: list[Options] = []
    with monkeypatch.context() as patch:
        patch.setattr(gate, "run", lambda options: seen.append(options) or Exit.OK)
        for name, value in variables.items():
            patch.setenv(f"PERFDOCTOR_GATE_{name}", value)
        with pytest.raises(SystemExit) as ended:
            cli.main(["gate"])
    assert not ended.value.code
    return seen[0]


@pytest.mark.parametrize("name", VARIABLES)
def test_every_option_is_a_variable_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = options_with(monkeypatch, **{name: VARIABLES[name]})
    assert changed != options_with(monkeypatch)


def test_no_option_is_forgotten() -> None:
    import typer.main

    command = typer.main.get_command(cli.app).commands["gate"]  # type: ignore[attr-defined]
    words = {word for parameter in command.params for word in parameter.opts if word.startswith("--")}
    assert {word[2:].replace("-", "_").upper() for word in words} == set(VARIABLES)


def gate_options(*, against: str | None = None, outputs: tuple[str, ...] = ()) -> Options:
    return Options(TypedJob(("train.py",)), against, None, None, True, False, 2, outputs, False, Settings())


@pytest.mark.parametrize(("code", "verdict"), [(Exit.JOB_FAILED, "failed"), (Exit.NOT_MEASURABLE, "not-comparable")])
def test_a_gate_that_fails_still_writes_its_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: Exit, verdict: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    Path("job.out").write_text("epoch 1\nTraceback (most recent call last):\n  ...\nRuntimeError: no data\n")

    def fails(*_: Any) -> GateResult:
        raise JobFailedError(
            "now: it failed", slug="job-failed", advice="see it", exit_code=code, output=Path("job.out")
        )

    monkeypatch.setattr(gate, "_against", fails)
    monkeypatch.setattr(gate, "LOCK", tmp_path / "lock")
    with pytest.raises(PerfdoctorError):
        gate.run(gate_options(against="main", outputs=("json:gate.json", "junit:gate.xml", "markdown:gate.md")))
    report = json.loads(Path("gate.json").read_text())
    assert (report["verdict"], report["exit_code"], report["reason"]) == (verdict, int(code), "now: it failed")
    for name in ("gate.json", "gate.xml", "gate.md"):
        assert "RuntimeError: no data" in Path(name).read_text()
    assert "Traceback" in capsys.readouterr().err


def test_wrong_options_write_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    monkeypatch.setattr(gate, "LOCK", tmp_path / "lock")
    with pytest.raises(PerfdoctorError) as caught:
        gate.run(gate_options(against="main", outputs=("json:gate.json",)))
    assert caught.value.slug == "not-a-repository"
    assert not Path("gate.json").exists()


# ---------------------------------------------------------------------------------------------------------
# Stored baselines


class Launches:
    """Stands for launches of the job: what each finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.syncs = 6.0
        self.findings: tuple[Any, ...] = (finding(),)
        self.directory = directory
        monkeypatch.setattr(stored, "launch", self.launch)

    def launch(self, command: Command, config: Config, count: int) -> tuple[Sequence[Diagnosis], RunDirectory]:
        evidence = samples.with_(samples.healthy(), counters=replace(COUNTED, syncs=self.syncs))
        return [Diagnosis(evidence, found_by(*self.findings), None)] * count, RunDirectory(self.directory)

    def gate(self, file: Path, **config: Any) -> GateResult:
        return stored.gate_against(file, COMMAND, Config(**config), 2, TODAY)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launches:
    return Launches(monkeypatch, tmp_path)


def test_a_baseline_is_written_shown_and_gated_against(launches: Launches, tmp_path: Path) -> None:
    file = tmp_path / "perf-baseline.json"
    stored.write(file, COMMAND, Config(), 2, TODAY)
    assert "scalar reads (syncs) per step: 6" in stored.show(file)
    assert "PD04.explicit-collect" in stored.show(file)
    assert launches.gate(file).verdict is Verdict.PASS
    launches.syncs = 7.0
    worse = launches.gate(file)
    assert worse.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(worse)] == ["syncs"]


def test_a_new_finding_fails_by_its_level_and_is_explained(launches: Launches, tmp_path: Path) -> None:
    file = tmp_path / "perf-baseline.json"
    stored.write(file, COMMAND, Config(), 2, TODAY)
    launches.findings = (finding(), finding("PD10.item"))
    worse = launches.gate(file)
    assert worse.verdict is Verdict.REGRESSION
    assert worse.why is not None
    assert worse.why.findings == ("PD10.item at train.py:3",)
    assert launches.gate(file, fail_on="never").verdict is Verdict.PASS


def test_a_budget_counts_besides_the_baseline(launches: Launches, tmp_path: Path) -> None:
    file = tmp_path / "perf-baseline.json"
    stored.write(file, COMMAND, Config(), 2, TODAY)
    broken = launches.gate(file, budgets=(Budget("syncs", "error", max=3),))
    assert broken.verdict is Verdict.REGRESSION
    assert broken.reason == "outside budget: scalar reads (syncs) per step"


def test_without_a_file_the_command_to_write_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        stored.read(tmp_path / "none.json")
    assert "baseline write" in caught.value.advice


def test_pruning_needs_a_recording_without_the_finding(launches: Launches, tmp_path: Path) -> None:
    file = tmp_path / "perf-baseline.json"
    launches.findings = (finding(file="gone.py"),)
    stored.write(file, COMMAND, Config(), 2, TODAY)
    assert "removed PD04.explicit-collect gone.py::train" in stored.prune(file, DEMO, Config())
    assert stored.prune(file, DEMO, Config()) == "nothing to remove"


# ---------------------------------------------------------------------------------------------------------
# Diff and self-test


def test_two_recordings_side_by_side_have_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(config=None)
    assert diff.run(DEMO, DEMO, settings, ["json"], verbose=False) is Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "not-judged"
    assert {j["verdict"] for j in found["judgements"]} == {"not-judged"}
    (step,) = [j for j in found["judgements"] if j["name"] == "step_time_ms"]
    assert step["change"] == 0
    assert found["notes"] == []


def test_the_self_tests_answers_are_checked() -> None:
    same, slower, item, batch, hollow, data, fails = TRIALS
    assert problem_of(same, result(Verdict.PASS)) == ""
    assert problem_of(same, result(Verdict.REGRESSION)) != ""
    assert problem_of(slower, result(Verdict.PASS)) != ""
    assert problem_of(item, result(Verdict.REGRESSION)) == "named nothing"
    assert problem_of(batch, result(Verdict.NOT_COMPARABLE)) == ""
    assert problem_of(hollow, result(Verdict.PASS)) != ""
    storm = Trial("a storm", (), (Verdict.REGRESSION, Verdict.PASS), differs=("gc_collections_gen0",))
    assert "moved" in problem_of(storm, result(Verdict.PASS))
    failed = PerfdoctorError("x", slug="job-failed", advice="", exit_code=Exit.JOB_FAILED)
    assert problem_of(fails, failed) == problem_of(data, failed) == ""
    assert problem_of(same, failed) != ""
