"""Traces that others recorded on real GPUs, where they lie beside the checkout; they are no part of it."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from perfdoctor.traces.model import NOT_SAID, HostSpans, Kind, Trace
from perfdoctor.traces.reader import read
from perfdoctor.traces.source import find

FOLDER = Path(__file__).parents[3] / "shared" / "traces"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no traces of real GPUs beside the checkout")


@cache
def real(number: str) -> Trace:
    (path,) = FOLDER.glob(f"{number}_*.json.gz")
    return read(path)


def steps(trace: Trace) -> HostSpans:
    seen = [trace.named(int(index)).startswith("ProfilerStep#") for index in trace.marks.name]
    return trace.marks.where(np.array(seen, np.bool_))


@pytest.mark.parametrize(
    ("number", "operators", "calls", "kinds", "frames", "steps_seen"),
    [
        ("01", 23_622, 11_923, (8_772, 12, 312), 0, 6),
        ("02", 20_538, 12_085, (8_868, 12, 378), 0, 6),
        ("05", 56_680, 42_373, (19_370, 2_040, 880), 0, 5),
        ("06", 40_506, 24_692, (8_568, 228, 654), 0, 6),
        ("09", 6_175, 5_587, (2_360, 5, 10), 6_649, 0),
        ("10", 8_004, 3_100, (2_995, 550, 108), 34_405, 3),
        ("15", 4_809, 1_372, (768, 161, 0), 15_230, 0),
    ],
)
def test_every_event_is_read(
    number: str, operators: int, calls: int, kinds: tuple[int, ...], frames: int, steps_seen: int
) -> None:
    trace = real(number)
    assert (trace.cut, trace.problems) == (False, ())
    assert (len(trace.operators), len(trace.calls), len(trace.frames)) == (operators, calls, frames)
    assert tuple(np.bincount(trace.work.kind, minlength=3)) == kinds
    assert len(steps(trace)) == steps_seen


@pytest.mark.parametrize(
    ("number", "platform", "device", "rank", "world_size"),
    [
        ("01", "cuda", "Tesla V100-DGXS-32GB", None, None),
        ("05", "cuda", "Tesla V100-SXM2-32GB", 1, 2),
        ("06", "cuda", "NVIDIA A100-PG509-200", 3, 8),
        ("09", "rocm", "AMD Instinct MI300X", None, None),
        ("10", "rocm", "AMD Instinct MI300X", 0, 8),
        ("15", "cuda", "NVIDIA B200", 0, 8),
    ],
)
def test_where_it_ran_is_known(
    number: str, platform: str, device: str, rank: int | None, world_size: int | None
) -> None:
    trace = real(number)
    assert (trace.platform, trace.devices[0].name, trace.rank, trace.world_size) == (platform, device, rank, world_size)


@pytest.mark.parametrize(("number", "without"), [("01", 0), ("05", 0), ("06", 0), ("09", 0), ("10", 968), ("15", 0)])
def test_work_finds_its_call_unless_that_lies_before_the_window(number: str, without: int) -> None:
    work, calls = real(number).work, real(number).calls
    assert np.count_nonzero(work.call == NOT_SAID) == without
    asked = work.where(work.call != NOT_SAID)
    assert (calls.correlation[asked.call] == asked.correlation).all()
    assert (calls.start_us[asked.call] < asked.start_us).all()


def test_zero_lengths_of_whole_microseconds_are_kept() -> None:
    work = real("01").work
    kernels = work.where(work.kind == Kind.KERNEL)
    assert np.count_nonzero(kernels.end_us == kernels.start_us) == 636


@pytest.mark.parametrize(("number", "mean_us"), [("01", 177_592), ("02", 141_068)])
def test_steps_last_as_long_as_the_oracle_says(number: str, mean_us: float) -> None:
    """Up to the end of what the last step asked the device for."""
    trace = real(number)
    seen = steps(trace)
    assert (trace.work.end_us.max() - seen.start_us[0]) / len(seen) == pytest.approx(mean_us, rel=2e-4)


def test_types_and_shapes_and_collectives_are_read() -> None:
    trace = real("10")
    types = {trace.named(int(index)) for index in np.unique(trace.operators.dtype)}
    assert {"bfloat16", "float32"} <= types
    assert np.count_nonzero(trace.work.collective != NOT_SAID) == 12
    assert (trace.with_shapes, trace.with_stack) == (True, True)


def test_eight_ranks_are_found_and_read(tmp_path: Path) -> None:
    (archive,) = FOLDER.glob("03_*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    sources = find(tmp_path)
    traces = [read(path) for path in sources.paths]
    assert sources.note == ""
    assert [trace.rank for trace in traces] == list(range(8))
    assert {trace.world_size for trace in traces} == {8}
    assert [len(trace.operators) for trace in traces] == [1633] * 8
