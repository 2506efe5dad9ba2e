from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import Record, ops_window, recorded, selected, settings, steps

from perfdoctor.evidence import device, steady
from perfdoctor.evidence.model import DeviceParts, DeviceTimeline, Missing

N = 200
MARKED = list(range(7, N, 7))


def marks(step: list[int], **us: Any) -> Record:
    row = {
        "host_us": 10_000,
        "total_us": 10_000,
        "input_wait_us": 500,
        "forward_us": 3_000,
        "backward_us": 5_000,
        "optimizer_us": 1_000,
        "idle_most_us": 600,
        "ahead_low_us": 8_000,
        "ahead_high_us": 9_000,
    }
    return {"k": "device", "n": len(step), "step": step, **row, **us}


def _timeline(
    tmp_path: Path, *records: Record, busy_ms: float | None = 7.5, **setting: Any
) -> DeviceTimeline | Missing:
    facts = settings(**{"cuda": {"total_bytes": 80 << 30, "allocator": "native"}, "device_clock": "", **setting})
    seen = [] if busy_ms is None else [ops_window(device_busy_ms=busy_ms)]
    process = recorded(tmp_path, facts, steps(10_000, N, marked=[20, 21]), *seen, *records)
    selection = selected(process)
    return device.timeline(process, selection, steady.measure(process, selection))


def _seen(*arguments: Any, **changes: Any) -> DeviceTimeline:
    found = _timeline(*arguments, **changes)
    assert isinstance(found, DeviceTimeline), found
    return found


def _reason(*arguments: Any, **changes: Any) -> str:
    found = _timeline(*arguments, **changes)
    assert isinstance(found, Missing), found
    return found.reason


def test_parts_are_milliseconds_and_other_is_what_remains(tmp_path: Path) -> None:
    seen = _seen(tmp_path, marks(MARKED))
    assert seen.parts == DeviceParts(0.5, 3.0, 5.0, 1.0, 0.5)
    assert seen.total_ms == 10.0
    assert (seen.idle_most_ms, seen.ahead_low_ms, seen.ahead_high_ms) == (0.6, 8.0, 9.0)
    assert seen.busy_share == 0.75


def test_only_steady_steps_count(tmp_path: Path) -> None:
    seen = _seen(tmp_path, marks([0, 21], total_us=10**9, forward_us=10**9), marks(MARKED))
    assert seen.parts.forward == 3.0
    assert seen.steps == len([step for step in MARKED if step != 21])


def test_waiting_is_a_mean_and_a_hiccup_elsewhere_is_not_in_it(tmp_path: Path) -> None:
    waits = [5_600 if i % 14 == 0 else 0 for i in range(len(MARKED))]
    forwards = [3_000] * (len(MARKED) - 1) + [90_000]
    totals = [7_000 + wait + forward - 3_000 for wait, forward in zip(waits, forwards, strict=True)]
    seen = _seen(tmp_path, marks(MARKED, input_wait_us=waits, forward_us=forwards, total_us=totals, optimizer_us=0))
    assert seen.parts.forward == 3.0
    assert seen.parts.input_wait == pytest.approx(sum(waits[i] for i, s in enumerate(MARKED) if s != 21) / 27 / 1000)


@pytest.mark.parametrize(
    ("us", "bound"),
    [
        ({"idle_most_us": 2_000}, "device"),
        ({"idle_most_us": 2_001}, "both"),
        ({"idle_most_us": 2_001, "ahead_low_us": 0, "ahead_high_us": 2_001}, "both"),
        ({"idle_most_us": 2_001, "ahead_low_us": 0, "ahead_high_us": 2_000}, "host"),
        ({"idle_most_us": 0, "ahead_low_us": 0, "ahead_high_us": 0}, "device"),
    ],
)
def test_who_bounds_the_step(tmp_path: Path, us: dict[str, int], bound: str) -> None:
    assert _seen(tmp_path, marks(MARKED, **us)).bound == bound


def test_with_kernels_on_nearly_all_the_time_the_host_does_not_bound_it_alone(tmp_path: Path) -> None:
    blocking = {"idle_most_us": 9_000, "ahead_low_us": 0, "ahead_high_us": 100}
    assert _seen(tmp_path, marks(MARKED, **blocking)).bound == "host"
    assert _seen(tmp_path, marks(MARKED, **blocking), busy_ms=8.0).bound == "both"


def test_kernels_that_overlap_fill_no_more_than_the_step(tmp_path: Path) -> None:
    assert _seen(tmp_path, marks(MARKED), busy_ms=25.0).busy_share == 1.0
    unseen = _seen(tmp_path, marks(MARKED), busy_ms=None).busy_share
    assert isinstance(unseen, Missing)


def test_few_marks_say_nothing_and_why_they_are_few(tmp_path: Path) -> None:
    left_out = {"left_out": {"a graph was captured": 2}}
    reason = _reason(tmp_path, marks(MARKED[:4]) | left_out, marks([]) | left_out)
    assert reason.startswith("too few steady steps are marked on the device's timeline: 3")
    assert reason.endswith("4 left out because a graph was captured")
    assert _reason(tmp_path).startswith("too few steady steps are marked on the device's timeline: 0")


def test_where_there_is_no_timeline_the_reason_is_its_own(tmp_path: Path) -> None:
    assert _reason(tmp_path, cuda=None) == "the process does not use CUDA"
    several = "the model lies on several devices"
    assert _reason(tmp_path, device_clock=several) == several
    fault = {"k": "fault", "hook": device.HOOK, "error": "RuntimeError: CUDA error"}
    assert "RuntimeError: CUDA error" in _reason(tmp_path, fault, device_clock=None)


def test_what_was_marked_before_a_failure_counts(tmp_path: Path) -> None:
    fault = {"k": "fault", "hook": device.HOOK, "error": "RuntimeError: CUDA error"}
    assert _seen(tmp_path, marks(MARKED), fault).steps == 27


def test_without_settings_nothing_is_known(tmp_path: Path) -> None:
    process = recorded(tmp_path, steps(10_000, N), marks(MARKED))
    selection = selected(process)
    found = device.timeline(process, selection, steady.measure(process, selection))
    assert isinstance(found, Missing)
    assert "settings" in found.reason
