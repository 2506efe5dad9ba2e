"""A group with a CPU quota, where one may be made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.clinic import quota, running
from benchmarks.clinic.case import Case, write


def test_outside_a_control_group_it_is_not_allowed_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(quota.NotAllowedError, match=r"cpu\.cfs_period_us"), quota.group(0.5, [tmp_path]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_any_group_the_reason_is_said() -> None:
    with pytest.raises(quota.NotAllowedError, match="no control group"), quota.group(0.5, []):
        pass


def test_where_it_is_allowed_a_command_runs_in_it_from_the_start() -> None:
    try:
        with quota.group(0.5) as here:
            command = [*quota.joining(here), "cat", "/proc/self/cgroup"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
            assert here.name in done.stdout
    except quota.NotAllowedError as error:
        pytest.skip(f"not allowed here: {error}")
    assert not here.exists()


def test_what_still_runs_at_the_end_is_killed() -> None:
    try:
        with quota.group(0.5) as here:
            sleeper = subprocess.Popen([*quota.joining(here), "sleep", "60"])
            while str(sleeper.pid) not in (here / "cgroup.procs").read_text().split():
                assert sleeper.poll() is None
    except quota.NotAllowedError as error:
        pytest.skip(f"not allowed here: {error}")
    assert sleeper.wait(timeout=10) == -9


def test_a_program_that_needs_no_quota_has_nothing_put_before_it() -> None:
    with running.surroundings(write(Case("one", "x = 1\n", "placebo", "tabular"), 1)) as before:
        assert before == []
