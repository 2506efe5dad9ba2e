"""Dynamo's record of compilations is read once each, and nothing of Dynamo is imported for it."""

from __future__ import annotations

import sys
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe.compiler import looked_at
from perfdoctor.injected._perfdoctor_probe.hooks import compilations as hook
from perfdoctor.injected._perfdoctor_probe.hooks.compilations import Compilations

FILE = "/home/ann/job/model.py"
BEGAN_US = 1_700_000_000_000_000
CLOCK_NS = 9_000_000_000
"""Half a second later, on the clock of the steps."""


class Recorder:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def record(self, kind: str, **fields: Any) -> None:
        self.records.append({"k": kind, **fields})


class Sites:
    def is_library(self, file: str) -> bool:
        return file != FILE

    def number(self, place: tuple) -> tuple:
        return place[1:3]


def metric(**fields: Any) -> SimpleNamespace:
    names = [
        "compile_id",
        "co_name",
        "co_filename",
        "co_firstlineno",
        "recompile_reason",
        "restart_reasons",
        "fail_reason",
    ]
    return SimpleNamespace(**{**dict.fromkeys(names), "start_time_us": BEGAN_US, "duration_us": 80_000, **fields})


@pytest.fixture
def dynamo(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    known: list[SimpleNamespace] = []
    clocks = SimpleNamespace(time_ns=lambda: 1000 * BEGAN_US + 500_000_000, perf_counter_ns=lambda: CLOCK_NS)
    monkeypatch.setattr(hook, "time", clocks)
    module = ModuleType("torch._dynamo.utils")
    module.get_compilation_metrics = lambda: list(known)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
    return known


def read() -> tuple[Recorder, Compilations]:
    recorder = Recorder()
    return recorder, Compilations(recorder, Sites())


def test_how_much_dynamo_has_looked_at_is_known_where_it_counts(dynamo: list[SimpleNamespace]) -> None:
    assert looked_at() is None
    module: Any = sys.modules["torch._dynamo.utils"]
    module.counters = {"frames": Counter()}
    assert looked_at() == 0
    module.counters["frames"]["total"] += 2
    assert looked_at() == 2


def test_each_is_recorded_once_with_its_function_and_guard(dynamo: list[SimpleNamespace]) -> None:
    recorder, compilations = read()
    ours = {"co_name": "forward", "co_filename": FILE, "co_firstlineno": 30}
    dynamo.append(metric(compile_id="0/0", **ours))
    compilations.flush()
    dynamo.append(metric(compile_id="0/1", recompile_reason="0/0: size mismatch\nmore of it", **ours))
    compilations.flush()
    compilations.flush()
    first, second = recorder.records
    assert (first["frame"], first["site"], first["reason"], first["us"]) == ("0", (30, "forward"), "", 80_000)
    assert (second["frame"], second["reason"], second["resumed"]) == ("0", "size mismatch", False)
    assert first["t"] == CLOCK_NS - 500_000_000, "on the clock of the steps"


def test_what_follows_a_break_is_known_by_its_name(dynamo: list[SimpleNamespace]) -> None:
    recorder, compilations = read()
    broke = {"restart_reasons": {"Failed to trace builtin\n  Hint: ..."}, "co_filename": FILE, "co_firstlineno": 30}
    dynamo.append(metric(compile_id="0/0", co_name="forward", **broke))
    rest = {"co_name": "torch_dynamo_resume_in_forward_at_33", "co_filename": FILE, "co_firstlineno": 33}
    dynamo.append(metric(compile_id="1/0", **rest))
    compilations.flush()
    assert recorder.records[0]["broke"] == "Failed to trace builtin"
    assert (recorder.records[1]["resumed"], recorder.records[1]["site"]) == (True, (33, "forward"))


def test_a_library_has_no_line_and_a_backward_pass_no_name(dynamo: list[SimpleNamespace]) -> None:
    recorder, compilations = read()
    dynamo.append(metric(compile_id="0/0", co_name="inner", co_filename="/lib/torch/x.py", co_firstlineno=67))
    dynamo.append(metric(compile_id="0/0", start_time_us=5))
    compilations.flush()
    assert [one["site"] for one in recorder.records] == [None, None]


def test_what_has_no_moment_is_not_recorded(dynamo: list[SimpleNamespace]) -> None:
    recorder, compilations = read()
    dynamo.append(SimpleNamespace(compile_id="0/0", start_time=1.0))
    compilations.flush()
    assert recorder.records == []


def test_without_dynamo_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    recorder, compilations = read()
    compilations.flush()
    assert recorder.records == [] and "torch._dynamo.utils" not in sys.modules
