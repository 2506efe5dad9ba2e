"""The job's own profiler is noted, and what it costs an operator is timed without a trace."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerAction, schedule

from perfdoctor.injected._perfdoctor_probe.hooks.jobs_profiler import JobsProfiler
from perfdoctor.injected._perfdoctor_probe.hooks.profilers import Profilers
from perfdoctor.injected._perfdoctor_probe.microbenchmarks import deterministic, profiling
from perfdoctor.injected._perfdoctor_probe.windows.asserting import purpose

OPTIONS = {"record_shapes": True, "with_stack": False}


def _job() -> tuple[JobsProfiler, list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    recorder = SimpleNamespace(record=lambda kind, /, **fields: records.append(fields), flush=lambda: None)
    loop = SimpleNamespace(timeline=SimpleNamespace(step=7))
    return JobsProfiler(recorder, loop, SimpleNamespace(here=lambda depth: 5), Profilers(lambda: None)), records


def test_a_start_and_a_stop_are_noted_once() -> None:
    job, records = _job()
    job.stopped()
    job.started(SimpleNamespace(record_shapes=True, with_stack=False))
    job.stopped()
    job.stopped()
    assert [record["on"] for record in records] == [True, False]
    assert records[0] == {"step": 7, "on": True, "site": 5, "options": ["record_shapes"], "ends": False}


def test_ours_is_not_the_jobs() -> None:
    job, records = _job()
    job.profilers.starting_ours = True
    job.started(SimpleNamespace())
    job.profilers.starting_ours = False
    job.stopped()
    assert records == [] and not job.microbenchmark_due


def _emitter(**attributes: Any) -> Any:
    return type("emit_nvtx", (), {"enabled": True, "record_shapes": False, **attributes})()


def test_an_emitter_is_noted_by_its_kind_and_none_of_ours_stands_in_for_it() -> None:
    job, records = _job()
    job.started(_emitter(record_shapes=True))
    job.stopped()
    job.time_finally()
    assert records[0]["options"] == ["emit_nvtx", "record_shapes"]
    assert [record["on"] for record in records] == [True, False] and job.microbenchmark_due


def test_an_emitter_that_is_not_enabled_is_not_on() -> None:
    job, records = _job()
    job.started(_emitter(enabled=False))
    assert records == [] and not job.microbenchmark_due


@pytest.mark.parametrize(
    ("by", "ends"),
    [
        (schedule(wait=1, warmup=1, active=3, repeat=1), True),
        (schedule(wait=1, warmup=1, active=300, repeat=2), True),
        (schedule(wait=1, warmup=1, active=3), False),
        (torch.profiler.profiler._default_schedule_fn, False),
        (lambda step: ProfilerAction.NONE, False),
        (None, False),
    ],
    ids=["once", "twice", "again and again", "none of its own", "a function of the job's", "none"],
)
def test_a_schedule_tells_whether_it_ends(by: Any, ends: bool) -> None:
    job, records = _job()
    job.scheduled(SimpleNamespace(schedule=by))
    job.started(SimpleNamespace())
    assert records[0]["ends"] is ends and job.microbenchmark_due is not ends


def test_what_a_profiler_costs_is_timed_without_a_trace() -> None:
    state = torch.get_rng_state()
    found = profiling.timings(Profilers(lambda: None), OPTIONS)
    assert found["ops"] > 50 and found["off_ms"] > 0 and found["on_ms"] > 0
    assert torch.equal(torch.get_rng_state(), state) and not torch.autograd._profiler_enabled()


@pytest.fixture
def passes_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """One takes a millisecond, and two while a profiler hears of it."""
    now = SimpleNamespace(ns=0, muted=False)
    run, enable = profiling._Passes.run, torch._C._autograd._enable_record_function

    def switched(on: bool) -> None:
        now.muted = not on
        enable(on)

    def timed(passes: Any) -> None:
        run(passes)
        now.ns += 2_000_000 if torch.autograd._profiler_enabled() and not now.muted else 1_000_000

    monkeypatch.setattr(torch._C._autograd, "_enable_record_function", switched)
    monkeypatch.setattr(profiling._Passes, "run", timed)
    clocks = dict.fromkeys(("perf_counter_ns", "thread_time_ns"), lambda: now.ns)
    monkeypatch.setattr(profiling, "time", SimpleNamespace(**clocks))


@pytest.mark.usefixtures("passes_by_the_clock")
def test_passes_are_timed_with_one_and_without() -> None:
    found = profiling.timings(Profilers(lambda: None), OPTIONS)
    assert (found["off_ms"], found["on_ms"]) == (1.0, 2.0)


@pytest.mark.usefixtures("passes_by_the_clock")
def test_one_that_is_still_on_goes_on() -> None:
    with torch.autograd.profiler.profile() as profile:
        found = profiling.timings(Profilers(lambda: None), OPTIONS)
        torch.ones(2).cos()
    assert (found["off_ms"], found["on_ms"]) == (1.0, 2.0)
    assert "aten::cos" in {event.name for event in profile.function_events}


def test_modes_and_hooks_of_the_job_see_nothing() -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert profiling.timings(Profilers(lambda: None), OPTIONS) == {}
    finally:
        handle.remove()


@pytest.mark.parametrize("fills", [True, False])
def test_deterministic_algorithms_are_timed_without_and_put_back(fills: bool) -> None:
    seen: list[tuple[bool, bool]] = []

    def without(ways: dict[str, Any]) -> dict[str, Any]:
        for way in ways.values():
            change, put_back, _ = way(None, None)
            change()
            seen.append((torch.are_deterministic_algorithms_enabled(), module.fill_uninitialized_memory))
            put_back()
        return {"ways": list(ways)}

    module = torch.utils.deterministic
    assert deterministic.timings(SimpleNamespace(without=without)) == {}
    torch.use_deterministic_algorithms(True, warn_only=True)
    module.fill_uninitialized_memory = fills
    try:
        found = deterministic.timings(SimpleNamespace(without=without))
        assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
        assert module.fill_uninitialized_memory is fills
    finally:
        torch.use_deterministic_algorithms(False)
        module.fill_uninitialized_memory = True
    assert found == {"deterministic": {"ways": ["off", "unfilled"][: 1 + fills]}}
    assert seen == [(False, fills), (True, False)][: 1 + fills]


SOURCE = """
assert torch.isfinite(loss)
if torch.isnan(
    loss
).any():
    stop(loss.item())
assert (
    loss.item() > 0
), "negative"
total += loss.item()
bad = math.isinf(loss.item())
"""


def test_a_statement_tells_what_it_reads_for(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    asked = {line: purpose(str(file), line) for line in (2, 3, 6, 8, 10, 11)}
    assert asked == {2: "assert", 3: "nan_test", 6: "", 8: "assert", 10: "", 11: "nan_test"}
    (tmp_path / "broken.py").write_text("assert (")
    assert purpose(str(tmp_path / "broken.py"), 1) == purpose(str(tmp_path / "gone.py"), 1) == ""
