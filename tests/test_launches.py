"""A launch is made once in a session, and once more where the machine disturbed it."""

from __future__ import annotations

from pathlib import Path

import launches
import pytest
from disturbance import disturbance
from launches import Launches


@pytest.mark.parametrize(
    ("busy_s", "idle_s", "disk_s", "stolen_s", "said"),
    [
        (10.0, 10.0, 0.0, 0.0, ""),
        (10.0, 10.0, 0.0, 0.4, ""),
        (10.0, 10.0, 0.0, 1.0, "9% of the CPU time was stolen"),
        (19.0, 1.0, 0.0, 0.0, "5% of the CPU time was idle"),
        (10.0, 9.0, 1.0, 0.0, ""),
        (10.0, 5.0, 5.0, 0.0, "25% of the CPU time waited for a disk"),
        (0.1, 0.0, 0.0, 0.1, ""),  # too short to tell
        (0.0, 0.0, 0.0, 0.0, ""),
    ],
)
def test_a_machine_is_disturbed_by_a_hypervisor_by_others_or_by_its_disk(
    busy_s: float, idle_s: float, disk_s: float, stolen_s: float, said: str
) -> None:
    assert disturbance(busy_s, idle_s, disk_s, stolen_s) == said


class Job:
    """Counts how often it was launched, on a machine that is said to have been disturbed at first or never."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *disturbances: str) -> None:
        self.directories: list[Path] = []
        said = iter((*disturbances, *[""] * 9))
        monkeypatch.setattr(launches.Watch, "disturbance", lambda watch: next(said))

    def __call__(self, here: Path) -> str:
        self.directories.append(here)
        return f"launch {len(self.directories)}"


def test_what_is_launched_alike_is_launched_once_by_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(monkeypatch)
    for worker in (Launches(tmp_path / "shared"), Launches(tmp_path / "shared")):
        assert [worker.once(("job", 1), job), worker.once(("job", 1), job)] == ["launch 1"] * 2
    assert Launches(tmp_path / "shared").once(("job", 2), job) == "launch 2"
    assert len(set(job.directories)) == 2


def test_what_was_disturbed_and_used_is_launched_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, shared = Job(monkeypatch, "stolen"), Launches(tmp_path / "shared")
    shared.once("job", job)
    shared.begin()
    assert shared.forget_disturbed() == "", "the next test did not look at it"
    assert shared.once("job", job) == "launch 1"
    assert shared.forget_disturbed() == "stolen"
    assert shared.once("job", job) == "launch 2"
    assert shared.forget_disturbed() == ""
    assert shared.once("job", job) == "launch 2"
