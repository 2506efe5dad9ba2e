"""Debugging that is on: from the settings and the allow-listed variables of a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from recordings import recorded, settings

from perfdoctor.evidence.model import DebuggingAid, Missing
from perfdoctor.evidence.settings import debugging


def test_variables_are_named_with_what_switches_them_off(tmp_path: Path) -> None:
    process = recorded(tmp_path, settings(environment={"PYTHONDEVMODE": "1"}))
    assert debugging(process) == (DebuggingAid("Python's development mode", "unset PYTHONDEVMODE", "allocator"),)


@pytest.mark.parametrize(
    ("name", "value", "count"),
    [
        ("PYTHONDEVMODE", "", 0),
        ("PYTHONTRACEMALLOC", "0", 0),
        ("PYTHONTRACEMALLOC", "25", 1),
        ("PYTHONMALLOC", "malloc", 0),
        ("PYTHONMALLOC", "debug", 1),
        ("TORCH_DISTRIBUTED_DEBUG", "INFO", 0),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1),
        ("CUDA_LAUNCH_BLOCKING", "1", 1),
        ("TORCH_LOGS", "recompiles", 1),
        ("TORCH_SHOW_DISPATCH_TRACE", "1", 1),
        ("NCCL_DEBUG", "WARN", 0),
        ("NCCL_DEBUG", "TRACE", 1),
        ("ONEDNN_VERBOSE", "0", 0),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", 0),
        ("LD_PRELOAD", "/usr/lib/gcc/libasan.so.8", 1),
        ("OMP_NUM_THREADS", "1", 0),
    ],
)
def test_a_variable_counts_by_its_value(tmp_path: Path, name: str, value: str, count: int) -> None:
    found = debugging(recorded(tmp_path, settings(environment={name: value})))
    assert not isinstance(found, Missing)
    assert len(found) == count


def test_options_of_the_interpreter_are_aids_too_and_named_once(tmp_path: Path) -> None:
    found = debugging(recorded(tmp_path, settings(python_options=["dev", "importtime", "utf8"])))
    assert not isinstance(found, Missing)
    assert [aid.off for aid in found] == ["python train.py, without -X dev"], "imports cost no step anything"
    twice = settings(python_options=["dev"], environment={"PYTHONDEVMODE": "1"})
    assert debugging(recorded(tmp_path, twice)) == (
        DebuggingAid("Python's development mode", "unset PYTHONDEVMODE", "allocator"),
    )


def test_what_traces_every_line_is_named(tmp_path: Path) -> None:
    (aid,) = debugging(recorded(tmp_path, settings(tracer="coverage")))  # type: ignore[misc]
    told = "coverage, which Python calls for every line or call"
    assert aid == DebuggingAid(told, "python train.py, without coverage", "traced_calls")


def test_allocations_that_a_line_of_the_job_traces_are_named_too_and_once(tmp_path: Path) -> None:
    (aid,) = debugging(recorded(tmp_path, settings(traced_frames=25)))  # type: ignore[misc]
    assert aid.name == "tracing of Python's allocations, 25 frames deep" and "tracemalloc.start()" in aid.off
    twice = settings(traced_frames=1, python_options=["tracemalloc"])
    assert debugging(recorded(tmp_path, twice)) == (
        DebuggingAid("tracing of Python's allocations", "python train.py, without -X tracemalloc", "tracing"),
    )


def test_without_settings_nothing_is_known(tmp_path: Path) -> None:
    assert isinstance(debugging(recorded(tmp_path)), Missing)
