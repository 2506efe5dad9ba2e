"""From what the probe saw of the memory to pieces that add up, and to what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recordings import Record, process, recorded, site, steps, torch
from rich.console import Console
from samples import JOB

from perfdoctor.profiles import memory, objects
from perfdoctor.recording.base import Missing
from perfdoctor.recording.model import Recording, RunFacts
from perfdoctor.report import memory_console, memory_json

MIB = 1 << 20
SITES = (site(0, 10), site(1, 20, function="Net.forward"))
KINDS = {"parameters": 40, "gradients": 40, "optimizer_state": 80, "activations": 300, "held": 10}


def window(whole: int = 1000, unwatched: str = "") -> Record:
    kinds = [{"what": what, "bytes": size * MIB, "count": 4} for what, size in KINDS.items()]
    made = {"what": "activations", "site": 1, "layer": "body.0", "layer_kind": "Linear", "bytes": 200 * MIB, "count": 2}
    device = {
        "device": "cpu",
        "part": "" if unwatched else "backward",
        "site": 0,
        "whole_bytes": whole * MIB,
        "mapped_bytes": 100 * MIB if whole else 0,
        "kinds": kinds,
        "largest": [made, {**made, "what": "held"}],
    }
    return {"k": "window", "name": "memory", "first_step": 10, "devices": [device], "unwatched": unwatched}


OBJECTS: Record = {
    "k": "window",
    "name": "objects",
    "first_step": 12,
    "steps": 8,
    "by_line": True,
    "types": [
        {"name": "__main__.Note", "count": 800, "bytes": 16 * MIB, "count_before": 400, "bytes_before": 8 * MIB},
        {"name": "dict", "count": 5, "bytes": 2 * MIB, "count_before": 5, "bytes_before": 2 * MIB},
    ],
    "lines": [{"site": 0, "count": 400, "bytes": 8 * MIB, "type": "__main__.Note"}],
}


class Built:
    """A job with these records."""

    def __init__(self, directory: Path, *records: Record) -> None:
        rank = recorded(directory, process(), torch(), *SITES, steps(10_000, 40, marked=range(12, 21)), *records)
        self.recording = Recording(RunFacts(), (rank,))
        self.profiles = memory.build(self.recording)
        self.objects = objects.build(self.recording)

    @property
    def profile(self) -> memory.MemoryProfile:
        assert not isinstance(self.profiles, Missing)
        (profile,) = self.profiles
        return profile

    @property
    def missing(self) -> Missing:
        assert isinstance(self.profiles, Missing)
        return self.profiles

    @property
    def page(self) -> str:
        console = Console(width=100, no_color=True)
        with console.capture() as capture:
            console.print(memory_console.render((self.profile,), self.objects, JOB))
        return capture.get()


@pytest.mark.parametrize("whole", [1000, 300, 0])
def test_pieces_add_up_to_the_whole(tmp_path: Path, whole: int) -> None:
    profile = Built(tmp_path, window(whole)).profile
    assert sum(piece.bytes for piece in profile.pieces) == profile.total_bytes
    assert {piece.what: piece.bytes // MIB for piece in profile.pieces}.items() >= KINDS.items()


def test_the_rest_is_what_no_tensor_and_no_file_has(tmp_path: Path) -> None:
    profile = Built(tmp_path, window(1000)).profile
    assert profile.total_bytes == 1000 * MIB
    assert profile.pieces[-2:] == (memory.Piece("mapped", 100 * MIB), memory.Piece("rest", 430 * MIB))


def test_tensors_that_nobody_has_written_to_count_all_the_same(tmp_path: Path) -> None:
    profile = Built(tmp_path, window(300)).profile
    assert "rest" not in {piece.what for piece in profile.pieces}
    assert profile.total_bytes == (sum(KINDS.values()) + 100) * MIB


def test_only_lines_of_the_step_are_told(tmp_path: Path) -> None:
    assert [made.what for made in Built(tmp_path, window()).profile.made_by] == ["activations"]


def test_without_being_asked_there_is_nothing(tmp_path: Path) -> None:
    built = Built(tmp_path)
    assert "--memory" in built.missing.remedy
    assert built.objects == ()


def test_a_window_that_failed_says_so(tmp_path: Path) -> None:
    built = Built(tmp_path, {"k": "fault", "hook": "window memory", "error": "ValueError: odd"})
    assert "ValueError: odd" in built.missing.reason


def test_the_page_says_what_when_and_where(tmp_path: Path) -> None:
    page = Built(tmp_path, window(), OBJECTS).page
    assert "CPU: the peak of memory in a steady step is 1,000 MiB" in page
    assert "reached in the backward pass, at train.py:10 in main" in page
    assert "activations, body.0 (Linear), 2 tensors" in page
    assert "+1.00 MiB per step" in page
    assert "mostly __main__.Note" in page


def test_where_not_all_objects_were_counted_nothing_grows(tmp_path: Path) -> None:
    page = Built(tmp_path, window(), {**OBJECTS, "is_cut": True}).page
    assert "per step" not in page
    assert "There are more" in page


def test_a_step_that_could_not_be_watched_is_no_peak(tmp_path: Path) -> None:
    page = Built(tmp_path, window(unwatched="the job uses torch.compile, which would trace the hooks")).page
    assert "memory between two steps" in page
    assert "peak" not in page
    assert "torch.compile" in page


def test_json_has_everything(tmp_path: Path) -> None:
    built = Built(tmp_path, window(), OBJECTS)
    page = json.loads(memory_json.render((built.profile,), built.objects, JOB))
    assert page["schema"] == memory_json.SCHEMA
    (device,) = page["memory"]
    assert sum(piece["bytes"] for piece in device["pieces"]) == device["total_bytes"]
    assert page["objects"][0]["types"][0]["count"] == 800


def test_what_noting_lines_cost_is_told(tmp_path: Path) -> None:
    walls = [30_000 if 12 <= step < 20 else 10_000 for step in range(40)]
    rank = recorded(tmp_path, process(), torch(), *SITES, steps(walls, marked=range(12, 21)), OBJECTS)
    (held,) = objects.build(Recording(RunFacts(), (rank,)))
    assert held.slower == pytest.approx(3.0)
