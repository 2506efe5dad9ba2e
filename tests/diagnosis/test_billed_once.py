"""Over thousands of generated runs, ill in several ways at once: time is billed once, and no share is negative."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from datetime import date

import numpy as np
import pytest
from ills import ILL
from samples import LOADER, healthy, on_gpu, step, with_

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.examine import Rules, examine
from perfdoctor.diagnosis.findings import Part
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.diagnosis.registry import discover
from perfdoctor.evidence.causes import compute, input_wait, lack_of_cpu, loader_waits
from perfdoctor.evidence.model import (
    Evidence,
    Fetch,
    GarbageCollection,
    Host,
    Loader,
    Missing,
    OpProfile,
    Parts,
    RunEvidence,
    Share,
    Step,
    ThreadTiming,
)

RUNS = 500
SEEDS = range(6)
GONE = Missing("it was not seen")
CHECKS = [(found.check, found.check.limits) for found in discover()]
RULES = Rules(Config(), date(2030, 6, 15), lambda _: None)
SOURCES = [healthy(), on_gpu(), *ILL.values()]
KEPT = {"rank", "step", "job", "probe_faults", "own_cost"}


def _scale(rng: np.random.Generator, low: float = -2.0, high: float = 2.0) -> float:
    """Over four decades, and exactly nothing at times."""
    return 0.0 if rng.random() < 0.15 else float(10 ** rng.uniform(low, high))


def _step(rng: np.random.Generator) -> Step:
    parts = Parts(**{f.name: _scale(rng) for f in fields(Parts)})
    whole = max(parts.total, 0.01)
    seen = step(Parts(**{**parts.as_dict(), "forward": parts.forward + whole - parts.total}))
    return with_(
        seen,
        # More than the step has room for, too: counters and trimmed means need not agree.
        cpu_ms=float(rng.uniform(0, 1.3)) * whole,
        run_delay_ms=GONE if rng.random() < 0.1 else float(rng.uniform(0, 0.8)) * whole,
        irregular_s=0.0,
        irregular_ms=_scale(rng),
    )


def _fetch(rng: np.random.Generator) -> Fetch:
    getitem, collate = _scale(rng), _scale(rng)
    return with_(
        LOADER.fetch,
        getitem_ms=getitem,
        getitem_cpu_ms=float(rng.uniform(0, 1.1)) * getitem,
        collate_ms=collate,
        collate_cpu_ms=float(rng.uniform(0, 1.1)) * collate,
        run_delay_ms=float(rng.uniform(0, 1.2)) * (getitem + collate),
    )


def _loader(rng: np.random.Generator, seen: Step) -> Loader:
    workers = int(rng.integers(0, 5))
    return with_(
        LOADER,
        num_workers=workers,
        wait_ms=seen.parts.input_wait,
        empty_share=float(rng.random()) if workers else GONE,
        transport_ms=_scale(rng),
        persistent_workers=bool(rng.random() < 0.5),
        iterators=int(rng.integers(1, 40)),
        iterator_start_ms=_scale(rng, high=3.0),
        batches_per_iterator=float(rng.choice([1.0, 3.0, 200.0])),
        steady_batches_per_step=float(rng.choice([0.5, 1.0, 1.0, 4.0])),
        fetch=GONE if rng.random() < 0.1 else _fetch(rng),
    )


def _host(rng: np.random.Generator, host: Host) -> Host:
    return with_(
        host,
        job_cpus=_scale(rng, high=1.0),
        others_cpus=_scale(rng, high=1.0),
        idle_cpus=float(rng.choice([0.0, 0.1, 3.0])),
        steal_share=float(rng.choice([0.0, 0.0, 0.3])),
        job_run_delay_share=GONE if rng.random() < 0.2 else float(rng.random()),
        throttled_share=float(rng.choice([0.0, 0.2, 0.8])),
        throttled_time_share=GONE if rng.random() < 0.5 else _scale(rng, high=1.0),
        memory_pressure_share=float(rng.choice([0.0, 0.5])),
    )


def _collections(seen: Step, gc: GarbageCollection) -> GarbageCollection:
    """As long as the step says, by the lines that some other run had."""
    lines = tuple(with_(line, ms_per_step=seen.parts.gc / len(gc.explicit)) for line in gc.explicit)
    rest = 0.0 if lines else seen.parts.gc
    return with_(gc, ms_per_step=seen.parts.gc, automatic_ms_per_step=rest, explicit=lines)


def _operators(rng: np.random.Generator, ops: OpProfile) -> OpProfile:
    timings = tuple(ThreadTiming(threads, _scale(rng, -1.0, 1.0) + 0.01) for threads in (1, 2, 4))
    return with_(ops, thread_timings=timings) if rng.random() < 0.5 else ops


def _run(rng: np.random.Generator) -> Evidence:
    """Each part from another ill run, around one step; a tenth of them was not seen."""
    parts = {}
    for field in fields(Evidence):
        if field.name in KEPT:
            continue
        value = getattr(SOURCES[rng.integers(len(SOURCES))], field.name)
        may_be_missing = field.name != "machine"
        parts[field.name] = GONE if may_be_missing and rng.random() < 0.1 else value
    seen = _step(rng)
    loaders = tuple(with_(_loader(rng, seen), id=number) for number in range(rng.integers(0, 4)))
    evidence = with_(healthy(), **{**parts, "step": seen, "loaders": GONE if rng.random() < 0.1 else loaders})
    changes: dict[str, object] = {}
    if not isinstance(evidence.host, Missing):
        changes["host"] = _host(rng, evidence.host)
    if not isinstance(evidence.gc, Missing):
        changes["gc"] = _collections(seen, evidence.gc)
    if not isinstance(evidence.ops, Missing):
        changes["ops"] = _operators(rng, evidence.ops)
    return with_(evidence, **changes)


def _runs(seed: int) -> Iterator[Evidence]:
    rng = np.random.default_rng(seed)
    return (_run(rng) for _ in range(RUNS))


def _ms(share: Share) -> float:
    return 0.0 if isinstance(share.ms, Missing) else share.ms


def _diagnosed(evidence: Evidence) -> Diagnosis:
    return examine(RunEvidence((evidence,)), CHECKS, RULES)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sum_of_all_ceilings_never_exceeds_the_step(seed: int) -> None:
    several = 0
    for evidence in _runs(seed):
        seen = evidence.step
        assert isinstance(seen, Step)
        diagnosis = _diagnosed(evidence)
        crashed = [result for result in diagnosis.checks if result.outcome.kind is OutcomeKind.CRASHED]
        assert not crashed, crashed
        several += len(diagnosis.ranked) > 1
        billed = dict.fromkeys(Part, 0.0)
        for finding in diagnosis.ranked:
            saved = finding.savings
            assert 0 <= saved.low_ms <= saved.high_ms <= saved.ceiling_ms * (1 + 1e-9)
            # Opportunities are other ways to the same time, each for itself.
            billed[saved.part] += 0.0 if finding.is_opportunity else saved.ceiling_ms
        of_epochs = billed.pop(Part.EPOCH)
        assert sum(billed.values()) <= seen.step_ms * (1 + 1e-9)
        assert of_epochs <= seen.irregular_ms * (1 + 1e-9)
        # What causes a wait may cost the rest of the step as well, and is billed there then.
        waits = ((Part.INPUT_WAIT, seen.parts.input_wait), (Part.GC, seen.parts.gc))
        spilled = sum(max(0.0, billed[part] - ms) for part, ms in waits)
        assert billed[Part.COMPUTE] + billed[Part.OTHER] + spilled <= seen.working_ms * (1 + 1e-9)
        together = diagnosis.combined
        assert together is None or together.high_ms <= together.step_ms * (1 + 1e-9)
        assert together is None or together.step_ms <= (seen.step_ms + seen.irregular_ms) * (1 + 1e-9)
    assert several > RUNS / 3  # else this shows nothing


@pytest.mark.parametrize("seed", SEEDS)
def test_causes_share_the_step_and_none_of_them_takes_less_than_nothing(seed: int) -> None:
    for evidence in _runs(seed):
        seen, rest = evidence.step, compute(evidence)
        assert isinstance(seen, Step) and not isinstance(rest, Missing)
        whole = 0.0
        wait = input_wait(evidence)
        if not isinstance(wait, Missing):
            assert min(_ms(share) for share in wait.shares) >= 0
            assert sum(map(_ms, wait.shares)) == pytest.approx(wait.wait_ms)
            assert wait.hidden_ms >= 0
            whole += wait.wait_ms + wait.hidden_ms
            of_loaders = loader_waits(evidence)
            assert not isinstance(of_loaders, Missing)
            assert all(0 <= one.blamed_ms <= one.wait_ms * (1 + 1e-9) for one in of_loaders)
            assert sum(one.blamed_ms for one in of_loaders) <= seen.parts.input_wait * (1 + 1e-9)
        else:
            whole += seen.parts.input_wait
        assert min(_ms(share) for share in rest.shares) >= 0
        assert sum(map(_ms, rest.shares)) == pytest.approx(rest.whole_ms)
        assert sum(map(_ms, rest.savable)) <= seen.working_ms * (1 + 1e-9)
        assert min(map(_ms, rest.savable)) >= 0
        assert whole + rest.whole_ms + seen.parts.communication == pytest.approx(seen.step_ms)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lack_of_cpus_has_owners_for_all_of_it_or_none(seed: int) -> None:
    for evidence in _runs(seed):
        lack = lack_of_cpu(evidence)
        assert not isinstance(lack, Missing)
        if not isinstance(lack.owners, Missing):
            assert min(fraction for _, fraction in lack.owners) >= 0
            assert sum(fraction for _, fraction in lack.owners) == pytest.approx(1.0)
        else:
            assert isinstance(evidence.host, Missing)
