"""The loop that makes a line run many times: the user's, or one of an installed package that calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.nn.modules import container

from perfdoctor.injected._perfdoctor_probe.sites import is_package
from perfdoctor.injected._perfdoctor_probe.windows.loops import Loops

JOB = """
def slope(t, y):
    return -y

def run():
    for step in range(10):
        for sample in samples:
            solve(slope, sample)
        solve(slope, state)
"""
SOLVER = """
def solve(slope, y):
    for t in times:
        y = y + slope(t, y)
    return y
"""
SLOPE, TRAINS, OF_A_SAMPLE, CALLS = 3, 9, 8, 4


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    job, solver = tmp_path / "job.py", tmp_path / "site-packages" / "solvers" / "euler.py"
    solver.parent.mkdir(parents=True)
    job.write_text(JOB)
    solver.write_text(SOLVER)
    return str(job), str(solver)


def _around(files: tuple[str, str], at: int, *inside: tuple[str, int, str], function: str = "slope") -> Any:
    """Of a line of the job's, called by the solver, which line `at` calls; `inside` are frames that the line calls."""
    job, solver = files
    loops = Loops([(job, TRAINS, "run")], is_package)
    return loops.around([*inside, (job, SLOPE, function), (solver, CALLS, "solve"), (job, at, "run")])


@pytest.mark.parametrize("at", [TRAINS, OF_A_SAMPLE])
def test_a_function_that_a_package_calls_again_and_again_is_in_that_ones_loop(files: tuple[str, str], at: int) -> None:
    assert _around(files, at) == {"line": 3, "header": "for t in times", "carries": [], "by_library": True}


def test_a_package_that_loops_inside_the_line_makes_none_of_it(files: tuple[str, str]) -> None:
    job, solver = files
    loops = Loops([(job, TRAINS, "run")], is_package)
    inside = (solver, CALLS, "solve")
    assert loops.around([inside, (job, TRAINS, "run")]) is None
    found = loops.around([inside, (job, OF_A_SAMPLE, "run")])
    assert found is not None and found["header"] == "for sample in samples" and "by_library" not in found


def test_what_a_loop_calls_is_told_at_the_line_that_calls_it(files: tuple[str, str]) -> None:
    job, _ = files
    loops = Loops([(job, TRAINS, "run")], is_package)
    found = loops.around([(job, SLOPE, "slope"), (job, OF_A_SAMPLE, "run")])
    assert found is not None and found["body"] == (job, OF_A_SAMPLE, "run")
    found = loops.around([(job, OF_A_SAMPLE, "run")])
    assert found is not None and "body" not in found


def test_a_sequential_makes_no_loop_of_the_line_that_calls_it_but_of_the_modules_that_it_calls(
    files: tuple[str, str],
) -> None:
    job, _ = files
    inside = (container.__file__, _line_of("input = module(input)"), "forward")
    loops = Loops([(job, TRAINS, "run")], is_package)
    found = loops.around([inside, (job, OF_A_SAMPLE, "run")])
    assert found is not None and found["header"] == "for sample in samples"
    found = loops.around([(job, SLOPE, "slope"), inside, (job, TRAINS, "run")])
    assert found is not None and found["header"] == "for module in self" and found["by_library"]
    assert "body" not in found and not found["carries"], "nobody is to change torch's"


def _line_of(text: str) -> int:
    source = Path(container.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(source, 1) if line.strip() == text)


def test_a_package_that_is_the_users_own_has_loops_of_the_users(files: tuple[str, str]) -> None:
    job, solver = files
    loops = Loops([(job, TRAINS, "run")], lambda file: False)
    found = loops.around([(job, SLOPE, "slope"), (solver, CALLS, "solve"), (job, TRAINS, "run")])
    assert found is not None and found["header"] == "for t in times" and "by_library" not in found
