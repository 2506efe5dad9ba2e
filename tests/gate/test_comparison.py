"""A whole gate without processes: made-up launches go in, the verdict with its reasons comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import samples
from baselines import finding
from counted import COUNTED
from diagnosis_samples import found_by
from verdicts import regressions

from perfdoctor.config.rules import Budget
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Confidence, Finding
from perfdoctor.errors import PerfdoctorError
from perfdoctor.evidence.model import Evidence, Missing
from perfdoctor.gate import comparison
from perfdoctor.gate.comparison import AFTER, BEFORE, CONTROL, STEADY_MEMORY, Comparison, Terms
from perfdoctor.gate.decision import Policy
from perfdoctor.gate.interleaving import Launch, Program
from perfdoctor.gate.model import GateResult, Verdict
from perfdoctor.gate.samples import ALL_IN, CORE, Sample
from perfdoctor.launch.command import Command
from perfdoctor.launch.control import Turn
from perfdoctor.launch.job import Ending, write_facts

STEP_NS = 10_000_000


def evidence(**changes: Any) -> Evidence:
    return samples.with_(samples.healthy(), counters=replace(COUNTED, **changes))


class Stage:
    """Stands for processes: how long each arm's steps take, launch by launch, and what its recordings say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.factor: Callable[[str, int], float] = lambda name, launch: 1.0
        self.gen0: Callable[[str, int], int] = lambda name, launch: 2
        self.evidence = {BEFORE: evidence(), AFTER: evidence()}
        self.faults: Callable[[int], int] = lambda launch: 0
        """Page faults per step as long as nobody makes memory stay."""
        self.findings: dict[str, tuple[Finding, ...]] = {}
        self.arms: list[int] = []
        self.launches = 0
        self.windows: list[tuple[str, ...]] = []
        self.directory = directory
        monkeypatch.setattr(comparison, "interleave", self.interleave)
        monkeypatch.setattr(comparison, "judge", self.judge)

    def interleave(self, launches: Sequence[Launch], *_: Any) -> dict[str, Sample]:
        self.launches += 1
        self.windows.append(launches[0].windows)
        faults = 0 if STEADY_MEMORY.items() <= launches[0].program.environment.items() else self.faults(self.launches)
        self.arms.append(len(launches))
        samples = {}
        for one in launches:
            write_facts(one.directory)
            shortest = int(STEP_NS * self.factor(one.name, self.launches))
            gen0 = self.gen0(one.name, self.launches)
            turn = Turn(
                steps=5,
                wall_ns=5 * shortest,
                min_ns=shortest,
                wait_ns=shortest // 10,
                delay_ns=0,
                gen0=gen0,
                faults=5 * faults,
            )
            samples[one.name] = Sample([turn] * 12, ("train.py",), 400 << 20)
        return samples

    def judge(self, directory: Any, config: Config) -> Diagnosis:
        name = next(name for name in self.evidence if f"-gate-{name}-" in directory.path.name)
        return Diagnosis(self.evidence[name], found_by(*self.findings.get(name, ())), None)

    def hold(self, config: Config | None = None, **terms: Any) -> GateResult:
        here = Path(__file__).parent
        programs = [Program(name, Command(("python", "train.py"), "train"), here, {}) for name in (BEFORE, AFTER)]
        config = replace(config or Config(), runs=self.directory / "runs")
        given = {"policy": Policy(), "time_budget_s": 600.0, "seed": 1, **terms}
        return Comparison(programs[0], programs[1], config, Terms(**given)).run()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


def wobble(launch: int) -> float:
    """A little noise, the same every time."""
    return 0.004 * math.sin(launch * 2.4)


def test_the_same_passes_after_four_pairs_and_two_with_windows(stage: Stage) -> None:
    stage.factor = lambda name, launch: 1 + wobble(launch) * (name == AFTER)
    result = stage.hold()
    assert result.verdict is Verdict.PASS
    assert stage.launches == 4
    assert [bool(windows) for windows in stage.windows] == [True, True, False, False]
    assert len(result.pairs[CORE]) == 4
    assert result.why is None


@pytest.mark.parametrize(
    ("doubt", "launches"),
    [
        ({"calls": ()}, 8),  # another operator less: not the same
        ({"first_step": 3, "losses": ()}, 8),  # counted elsewhere
        ({"aten_ops": Missing("no window")}, 8),
        ({}, 4),
    ],
)
def test_only_arms_that_count_the_same_pass_early(stage: Stage, doubt: dict[str, Any], launches: int) -> None:
    stage.evidence[AFTER] = evidence(**doubt)
    assert stage.hold().verdict is not Verdict.REGRESSION
    assert stage.launches == launches


def test_four_pairs_that_differ_are_not_enough(stage: Stage) -> None:
    stage.factor = lambda name, launch: 1.0 + (0.02 if launch % 2 else -0.02) * (name == AFTER)
    assert stage.hold().verdict is Verdict.PASS
    assert stage.launches >= 8


def test_a_slowdown_never_passes_early(stage: Stage) -> None:
    """Neither one by the tolerance nor, since fewer pairs say less of it, one by half of that."""
    for slower in (1.05, 1.03):
        stage.launches = 0
        stage.factor = lambda name, launch, slower=slower: (slower if name == AFTER else 1.0) + wobble(launch)
        stage.hold()
        assert stage.launches >= 8


def test_a_time_budget_that_was_too_small_says_which_one_would_do(stage: Stage) -> None:
    notes = stage.hold(time_budget_s=0.0).notes
    assert any("--time-budget" in note and "can pass" in note for note in notes)


def test_a_budget_on_the_step_is_held_against_what_the_verdict_shows(stage: Stage) -> None:
    """Not against the launches with windows in them, whose steps took 25 ms."""
    kept = stage.hold(Config(budgets=(Budget("step_time_ms", "error", max=11.0),)))
    assert kept.verdict is Verdict.PASS
    (budget,) = [one for one in kept.judgements if one.name == "assert:step_time_ms"]
    (shown,) = [one for one in kept.judgements if one.name == ALL_IN]
    assert budget.after == shown.after == pytest.approx(10.0)


def test_a_slowdown_is_confirmed_by_fresh_pairs_and_explained(stage: Stage) -> None:
    stage.factor = lambda name, launch: (1.06 if name == AFTER else 1.0) + wobble(launch)
    result = stage.hold()
    assert result.verdict is Verdict.REGRESSION
    assert stage.launches == 16
    assert "6.0 % slower" in result.reason or "5.9 % slower" in result.reason
    assert result.why is not None
    assert Path(result.before.recording).is_dir()
    assert Path(result.after.recording).is_dir()
    assert len(list((stage.directory / "runs").iterdir())) == 2


def test_a_slowdown_that_does_not_come_back_is_no_regression(stage: Stage) -> None:
    stage.factor = lambda name, launch: (1.06 if name == AFTER and launch <= 8 else 1.0) + wobble(launch)
    assert stage.hold().verdict is not Verdict.REGRESSION


def test_one_call_more_is_named_although_the_time_passes(stage: Stage) -> None:
    stage.evidence[AFTER] = evidence(syncs=7.0, calls=(("aten::item", 7.0),))
    result = stage.hold()
    assert result.verdict is Verdict.REGRESSION
    assert {j.name for j in regressions(result)} == {"syncs", "op:aten::item"}
    assert result.why is not None
    assert "aten::item +1 per step" in result.why.counters
    assert {len(seen) for seen in result.pairs.values()} == {2}  # exact counters need no more


def test_a_job_that_does_less_is_not_compared(stage: Stage) -> None:
    stage.evidence[AFTER] = evidence(aten_ops=20.0)
    assert stage.hold().verdict is Verdict.NOT_COMPARABLE


def test_another_configuration_ends_after_one_pair(stage: Stage) -> None:
    loaders = stage.evidence[AFTER].loaders
    assert isinstance(loaders, tuple)
    stage.evidence[AFTER] = replace(stage.evidence[AFTER], loaders=(replace(loaders[0], batch_size=8),))
    result = stage.hold()
    assert result.verdict is Verdict.NOT_COMPARABLE
    assert "batch size 32, then 8" in result.reason
    assert stage.launches == 1


def test_another_loss_is_refused_unless_allowed(stage: Stage) -> None:
    stage.evidence[AFTER] = evidence(losses=(2.5,))
    refused = stage.hold()
    assert refused.verdict is Verdict.NOT_COMPARABLE
    assert "--allow-loss-change" in refused.reason
    allowed = stage.hold(allow_loss_change=True)
    assert allowed.verdict is Verdict.PASS
    assert any("loss 2.3, then 2.5" in note for note in allowed.notes)


def test_losses_without_a_seed_are_not_compared(stage: Stage) -> None:
    given = {BEFORE: iter((2.3, 2.9)), AFTER: iter((2.5, 2.1))}

    def judge(directory: Any, config: Config) -> Diagnosis:
        name = BEFORE if f"-gate-{BEFORE}-" in directory.path.name else AFTER
        return Diagnosis(evidence(losses=(next(given[name]),)), (), None)

    comparison.judge = judge  # type: ignore[attr-defined]
    result = stage.hold()
    assert result.verdict is Verdict.PASS
    assert any("no seed?" in note for note in result.notes)


def test_counters_of_other_steps_are_not_compared(stage: Stage) -> None:
    stage.evidence[AFTER] = evidence(first_step=3, syncs=90.0, losses=())
    result = stage.hold()
    assert result.verdict is Verdict.PASS
    assert any("other steps" in note for note in result.notes)


def test_an_a_a_control_that_differs_makes_it_inconclusive(stage: Stage) -> None:
    stage.factor = lambda name, launch: {CONTROL: 1.2}.get(name, 1.0) + wobble(launch)
    result = stage.hold(control="on")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "a second copy of itself" in result.reason
    stage.factor = lambda name, launch: 1.0 + wobble(launch)
    assert stage.hold(control="on").verdict is Verdict.PASS


def test_the_time_being_up_is_said(stage: Stage) -> None:
    result = stage.hold(time_budget_s=0.0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the time was up" in result.reason
    assert stage.launches == 1


def test_a_job_that_runs_foreign_files_is_refused(stage: Stage) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        stage.hold(wrong_tree=lambda before, after: f"{before[0]} is not its own file")
    assert caught.value.slug == "wrong-tree"
    assert int(caught.value.exit_code) == 3


def test_budgets_are_kept_or_not(stage: Stage) -> None:
    config = Config(budgets=(Budget("syncs", "error", max=5),))
    broken = stage.hold(config)
    assert broken.verdict is Verdict.REGRESSION
    assert broken.reason == "outside budget: scalar reads (syncs) per step"
    unseen = stage.hold(Config(budgets=(Budget("kernels", "error", max=5),)))
    assert unseen.verdict is Verdict.INCONCLUSIVE
    assert "budget: at most 5" in unseen.reason
    warned = Config(budgets=(Budget("syncs", "warn", max=5),))
    assert stage.hold(warned).verdict is Verdict.PASS


def test_noise_alone_is_inconclusive(stage: Stage) -> None:
    stage.factor = lambda name, launch: 1.0 + (0.2 if launch % 2 else -0.2) * (name == AFTER)
    result = stage.hold()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert stage.launches == 24


def test_one_noisy_a_a_control_hides_no_counter(stage: Stage) -> None:
    """What is counted does not depend on the machine being quiet."""
    stage.factor = lambda name, launch: {CONTROL: 1.2}.get(name, 1.0) + wobble(launch)
    stage.evidence[AFTER] = evidence(syncs=7.0, calls=(("aten::item", 7.0),))
    result = stage.hold(control="on")
    assert result.verdict is Verdict.REGRESSION
    assert {j.name for j in regressions(result)} == {"syncs", "op:aten::item"}


def test_an_a_a_control_joins_by_itself_where_there_is_room(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "read_available_bytes", lambda: 64 << 30)
    monkeypatch.setattr(comparison, "why_no_control", lambda *given: "" if given[4] > 1 << 30 else "no memory")
    stage.factor = lambda name, launch: 1.0 + wobble(launch) * (name == AFTER)
    result = stage.hold(control="auto")
    assert result.verdict is Verdict.PASS
    assert stage.arms == [2] + [3] * 4
    assert any("passes against a second copy of itself" in note for note in result.notes)
    monkeypatch.setattr(comparison, "read_available_bytes", lambda: 1 << 20)
    stage.arms.clear()
    alone = stage.hold(control="auto")
    assert stage.arms == [2] * 4
    assert any("no A/A control" in note and "no memory" in note for note in alone.notes)


def test_an_a_a_control_that_is_not_certain_yet_gets_more_launches(stage: Stage) -> None:
    noise = {CONTROL: 0.025}
    stage.factor = lambda name, launch: 1.0 + noise.get(name, 0.0) * (1 if launch % 2 else -1)
    stage.hold(control="on")
    assert stage.launches > 8


def test_an_a_a_control_leaves_once_it_is_certain(stage: Stage) -> None:
    stage.factor = lambda name, launch: 1.1 if name == AFTER else 1.0 + wobble(launch)
    result = stage.hold(control="on")
    assert result.verdict is Verdict.REGRESSION
    assert stage.arms == [3] * 7 + [2] * 9


def test_memory_that_comes_and_goes_is_made_to_stay(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "read_available_bytes", lambda: 64 << 30)
    # Faults make launches of one program differ; without them only the slowdown is left.
    stage.faults = lambda launch: 1000 * (launch > 1)
    noise = {1: 0.2, 2: -0.2}
    stage.factor = lambda name, launch: 1.0 + (0.06 + wobble(launch) + noise.get(launch, 0.0)) * (name == AFTER)
    result = stage.hold(steady_memory="auto")
    assert result.verdict is Verdict.REGRESSION
    assert stage.launches == 18  # the second one shows the faults
    assert len(result.pairs[CORE]) == 16
    assert max(result.pairs[CORE]) < math.log(1.07)
    assert [bool(windows) for windows in stage.windows] == [True] * 4 + [False] * 14
    assert len(list((stage.directory / "runs").iterdir())) == 2
    assert any("MALLOC_TRIM_THRESHOLD_=" in note for note in result.notes)


def test_memory_is_made_to_stay_however_late_it_shows(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "read_available_bytes", lambda: 64 << 30)
    stage.faults = lambda launch: 1000 * (launch == 8)
    noise = {1: 0.03, 2: -0.03, 3: 0.03, 4: -0.03}
    stage.factor = lambda name, launch: 1.0 + noise.get(launch, 0.0) * (name == AFTER)
    assert stage.hold(steady_memory="auto").verdict is Verdict.PASS
    assert stage.launches == 12


def test_no_times_are_set_aside_when_there_is_no_time_for_others(stage: Stage) -> None:
    stage.faults = lambda launch: 1000
    result = stage.hold(steady_memory="auto", time_budget_s=0.0)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert stage.launches == 1


def test_memory_that_stays_is_left_alone(stage: Stage) -> None:
    stage.faults = lambda launch: 99  # of 10 ms: less than 1 %
    result = stage.hold(steady_memory="auto")
    assert stage.launches == 4
    assert result.notes == ()


@pytest.mark.parametrize(
    ("asked", "available_gib", "changes", "said"),
    [
        ("off", 64, {}, "--steady-memory makes it stay"),
        ("auto", 1, {}, "little memory"),
        ("auto", 64, {"memory__malloc_settings": (("MALLOC_TOP_PAD_", "1"),)}, "settings of its own"),
    ],
)
def test_memory_is_left_alone_with_a_reason(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, asked: str, available_gib: int, changes: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr(comparison, "read_available_bytes", lambda: available_gib << 30)
    stage.faults = lambda launch: 1000
    stage.evidence = {name: samples.with_(evidence(), **changes) for name in (BEFORE, AFTER)}
    result = stage.hold(steady_memory=asked)
    assert stage.launches == 4
    assert any(said in note for note in result.notes)


def test_memory_can_be_made_to_stay_from_the_start(stage: Stage) -> None:
    stage.faults = lambda launch: 1000
    assert "times and memory are those with freed memory kept" in stage.hold(steady_memory="on").notes[0]
    assert stage.launches == 4


def test_collections_are_exact_where_all_pairs_agree(stage: Stage) -> None:
    def judged(result: GateResult) -> tuple[Verdict, float | None, str]:
        (found,) = [j for j in result.judgements if j.name == "gc_collections_gen0"]
        return found.verdict, found.change, found.reason

    assert judged(stage.hold())[:2] == (Verdict.PASS, 0)
    stage.gen0 = lambda name, launch: 3 if name == AFTER else 2
    verdict, change, reason = judged(stage.hold())
    assert (verdict, change) == (Verdict.REGRESSION, 20)  # 12 more in 60 steps
    assert "the same in all 4 pairs" in reason
    stage.gen0 = lambda name, launch: 2 + (launch % 8 == 3 and name == AFTER)
    verdict, _, reason = judged(stage.hold())
    assert verdict is Verdict.PASS
    assert "not exact" in reason


def test_new_findings_fail_when_asked_for_and_certain(stage: Stage) -> None:
    stage.findings = {BEFORE: (finding(),), AFTER: (finding(), finding("PD10.item"), finding("PD12.neighbours"))}
    assert stage.hold().verdict is Verdict.PASS
    assert [bool("sites" in windows) for windows in stage.windows[:2]] == [True, False]
    failed = stage.hold(fail_on="error")
    assert failed.verdict is Verdict.REGRESSION
    assert [j.name for j in regressions(failed)] == ["finding:PD10.item"]
    assert failed.reason == "new: PD10.item"
    assert "sites" in stage.windows[5]
    stage.findings[AFTER] = (replace(finding("PD10.item"), confidence=Confidence.LOW),)
    assert stage.hold(fail_on="error").verdict is Verdict.PASS
    assert stage.hold(fail_on="never").verdict is Verdict.PASS


def test_what_the_job_starts_itself_is_no_neighbours_doing(stage: Stage) -> None:
    stage.findings = {BEFORE: (), AFTER: (finding("PD12.started-each-step"), finding("PD12.steal"))}
    assert [j.name for j in regressions(stage.hold(fail_on="error"))] == ["finding:PD12.started-each-step"]


def test_a_finding_that_one_launch_lacks_is_not_certain(stage: Stage) -> None:
    seen = iter([(finding("PD10.item"),), ()])

    def judge(directory: Any, config: Config) -> Diagnosis:
        name = BEFORE if f"-gate-{BEFORE}-" in directory.path.name else AFTER
        return Diagnosis(evidence(), found_by(*(next(seen) if name == AFTER else ())), None)

    comparison.judge = judge  # type: ignore[attr-defined]
    assert stage.hold(fail_on="warning").verdict is Verdict.PASS


class Alone(Stage):
    """The same for launches that run one at a time; the second of two slots may be slower."""

    slot = 1.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        super().__init__(monkeypatch, directory)
        self.order: list[str] = []
        self.times: dict[str, float] = {}
        monkeypatch.setattr(comparison, "record", self.record)

    def record(self, request: Any, directory: Any, show: Any) -> Ending:
        write_facts(directory)
        name = next(name for name in self.evidence if f"-gate-{name}-" in directory.path.name)
        self.order.append(name)
        late = len(self.order) % 4 in (0, 3)  # the third and fourth launch of a unit
        self.times[str(directory.path)] = self.factor(name, len(self.order)) * (self.slot if late else 1.0)
        return Ending("stopped")

    def judge(self, directory: Any, config: Config) -> Diagnosis:
        diagnosis = super().judge(directory, config)
        step = diagnosis.evidence.step
        assert not isinstance(step, Missing)
        factor = self.times[str(directory.path)]
        slower = replace(step, step_ms=step.step_ms * factor, median_ms=step.median_ms * factor)
        return replace(diagnosis, evidence=replace(diagnosis.evidence, step=slower))


def test_launches_that_run_alone_are_balanced_against_a_slower_slot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = Alone(monkeypatch, tmp_path)
    stage.slot = 1.03
    stage.factor = lambda name, launch: 1.0 + wobble(launch)
    result = stage.hold(abba=True)
    assert result.verdict is Verdict.PASS
    units = [tuple(stage.order[at : at + 4]) for at in range(0, len(stage.order), 4)]
    assert set(units) == {(BEFORE, AFTER, AFTER, BEFORE), (AFTER, BEFORE, BEFORE, AFTER)}
    slower = Alone(monkeypatch, tmp_path)
    slower.factor = lambda name, launch: (1.08 if name == AFTER else 1.0) + wobble(launch)
    assert slower.hold(abba=True).verdict is Verdict.REGRESSION


@pytest.mark.parametrize(("quota", "threads"), [(None, None), (8.0, None), (4.0, None), (1.5, "1"), (0.5, "1")])
def test_threads_are_kept_within_a_quota(quota: float | None, threads: str | None) -> None:
    machine = replace(comparison.read_machine(), affinity_cpus=4, quota_cpus=quota)
    assert comparison._threads_within_quota(machine).get("OMP_NUM_THREADS") == threads
