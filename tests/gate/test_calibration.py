"""Calibration kernels: measured, stored, put side by side in words, and in no verdict."""

from __future__ import annotations

from dataclasses import replace

from test_baseline import BASE, against, launch, now

from perfdoctor.gate.baseline import parse, render
from perfdoctor.gate.calibration import compared
from perfdoctor.monitor.calibration import calibrate

THEN = {"Python loop": 500.0, "matmul": 200.0}


def test_what_is_slower_and_faster_is_said() -> None:
    said = compared(THEN, {"Python loop": 250.0, "matmul": 280.0})
    assert "1.4x slower at matmul and 2.0x faster at Python loop than the baseline's" in said
    assert "no verdict uses it" in said


def test_the_same_speed_is_said_too() -> None:
    assert "as fast as the baseline's at Python loop, matmul" in compared(THEN, {"Python loop": 550, "matmul": 190})


def test_what_was_not_measured_is_not_compared() -> None:
    assert compared({}, THEN) == compared(THEN, {}) == ""
    assert "matmul" not in compared({**THEN, "matmul": 0.0}, THEN)


def test_kernels_are_kept_in_the_file_and_old_files_have_none() -> None:
    base = replace(BASE, calibration=THEN)
    assert parse(render(base), "file").calibration == THEN
    lines = render(BASE).replace('  "calibration_us": {},\n', "")
    assert parse(lines, "file").calibration == {}


def test_no_verdict_depends_on_them() -> None:
    slow = replace(BASE, calibration={"matmul": 1.0})
    assert against(now(launch(), launch()), slow) == against(now(launch(), launch()), BASE)


def test_four_kernels_are_timed() -> None:
    found = calibrate()
    assert {"Python loop", "matmul", "memcpy"} <= set(found)
    assert all(us > 0 for us in found.values())
