"""Checkpoints that are written while the loop trains on: what they hold, who waits for them, and what fails."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from perfdoctor.injected._perfdoctor_probe.hooks.calls import Calls
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.checkpoints import Background
from perfdoctor.injected._perfdoctor_probe.remedies.skipping import Skipped

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib looks at files by itself before 3.11")
real_save = torch.save


class Disk:
    """`torch.save` to a disk that writes when it is told to."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.failing: list[OSError] = []
        self.written: list[str] = []

    def save(self, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        assert self.free.wait(60)
        if self.failing:
            raise self.failing.pop()
        real_save(obj, f, *args, **kwargs)
        self.written.append(Path(f).name if isinstance(f, (str, Path)) else "")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    for owner in (torch, torch.serialization):
        monkeypatch.setattr(owner, "save", made.save)
    yield made
    made.free.set()


@pytest.fixture
def remedy(disk: Disk) -> Iterator[Background]:
    remedy = Background(SimpleNamespace(calls=SimpleNamespace(files_saved=1, file_saved=lambda: None)))
    remedy.apply()
    yield remedy
    disk.free.set()
    remedy.withdraw()
    assert torch.save == disk.save and not hasattr(os.stat, "__wrapped__")


def state() -> dict[str, Any]:
    """Of a job: tied weights, a view, an optimizer's state, and plain values."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    net[2].weight = net[0].weight
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    rows = torch.randn(20, 3)
    return {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "view": rows[2:5], "rows": rows, "step": 7}


def bytes_of(saved: Any, path: Path) -> bytes:
    real_save(saved, path)
    return path.read_bytes()


def test_what_is_written_is_what_there_was_at_the_call_byte_for_byte(
    remedy: Background, disk: Disk, tmp_path: Path
) -> None:
    saved = state()
    (tmp_path / "plain").mkdir()
    wanted = bytes_of(saved, tmp_path / "plain" / "last.pt")
    torch.save(saved, tmp_path / "last.pt")
    assert disk.written == [], "the loop goes on before it is written"
    saved["net"]["0.weight"].zero_()
    saved["rows"].zero_()
    saved["step"] = 8
    disk.free.set()
    assert (tmp_path / "last.pt").read_bytes() == wanted
    assert remedy.lost() == ""


ASKING: dict[str, Callable[[Path], Any]] = {
    "torch.load": lambda path: torch.load(path)["a"].tolist(),
    "open": lambda path: path.open("rb").close(),
    "io.open": lambda path: io.open(path, "rb").close(),  # noqa: UP020
    "os.open": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "size": lambda path: os.path.getsize(path),  # noqa: PTH202
    "replace": lambda path: os.replace(path, path.with_suffix(".best")),  # noqa: PTH105
    "pathlib": lambda path: path.rename(path.with_suffix(".best")),
    "shutil.move": lambda path: shutil.move(path, path.with_suffix(".best")),
    "shutil.copy": lambda path: shutil.copy(path, path.with_suffix(".best")),
    "remove": lambda path: path.unlink(),
    "glob": lambda path: list(path.parent.glob("*.pt")),
    "a relative name": lambda path: open(os.path.relpath(path), "rb").close(),  # noqa: PTH123
    "a link to it": lambda path: open(path.with_suffix(".link"), "rb").close(),  # noqa: PTH123
    "a descriptor of its folder": lambda path: _beside(path),
    "another process": lambda path: subprocess.run(["true"], check=True),
}


def _beside(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.stat(path.name, dir_fd=folder)
    finally:
        os.close(folder)


@pytest.mark.parametrize("name", ASKING)
def test_whoever_asks_for_the_file_waits_until_it_is_written(
    name: str, remedy: Background, disk: Disk, tmp_path: Path
) -> None:
    path = tmp_path / "last.pt"
    path.with_suffix(".link").symlink_to(path)
    torch.save({"a": torch.arange(3)}, path)
    later = threading.Timer(0.05, disk.free.set)
    later.start()
    ASKING[name](path)
    assert disk.written == ["last.pt"]
    later.join()


def test_nobody_waits_for_another_file(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("x")
    torch.save({"a": torch.arange(3)}, tmp_path / "last.pt")
    assert other.read_text() == "x" and other.stat().st_size == 1
    with pytest.raises(FileNotFoundError):
        (tmp_path / "none").open()
    assert disk.written == []


def test_the_next_save_waits_for_the_one_before(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "first.pt")
    threading.Timer(0.05, disk.free.set).start()
    torch.save({"a": 2}, tmp_path / "second.pt")
    assert disk.written[0] == "first.pt"
    assert torch.load(tmp_path / "second.pt") == {"a": 2} and disk.written == ["first.pt", "second.pt"]


def test_it_is_written_before_the_remedy_is_gone(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "last.pt")
    threading.Timer(0.05, disk.free.set).start()
    remedy.withdraw()
    assert disk.written == ["last.pt"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_write_that_fails_is_raised_in_the_next_save_once(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    disk.free.set()
    disk.failing.append(OSError("no space left on device"))
    torch.save({"a": 1}, tmp_path / "last.pt")
    with pytest.raises(OSError, match="no space left"):
        torch.save({"a": 2}, tmp_path / "last.pt")
    torch.save({"a": 3}, tmp_path / "last.pt")
    assert torch.load(tmp_path / "last.pt") == {"a": 3}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failure_that_a_trials_end_meets_is_left_to_the_job(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    disk.free.set()
    disk.failing.append(OSError("no space left on device"))
    torch.save({"a": 1}, tmp_path / "last.pt")
    with pytest.raises(OSError, match="no space left"):
        remedy.withdraw()
    with pytest.raises(OSError, match="no space left"):
        torch.save({"a": 2}, tmp_path / "last.pt")


def test_a_path_that_cannot_be_written_to_is_an_error_at_once(remedy: Background, disk: Disk, tmp_path: Path) -> None:
    disk.free.set()
    with pytest.raises(RuntimeError, match="does not exist"):
        torch.save({"a": 1}, tmp_path / "nowhere" / "last.pt")


class OfTheJob:
    """Only the job's own code knows how to copy it."""


@pytest.mark.parametrize(
    ("saved", "why"),
    [
        ({"a": OfTheJob()}, "OfTheJob"),
        ({"a": torch.empty(3, device="meta")}, "on a device"),
        ({"a": torch.ones(3, requires_grad=True) * 2}, "could not be copied"),
    ],
    ids=["objects", "device", "graph"],
)
def test_what_cannot_be_copied_is_written_as_the_job_does(
    saved: Any, why: str, remedy: Background, disk: Disk, tmp_path: Path
) -> None:
    disk.free.set()
    torch.save(saved, tmp_path / "last.pt")
    assert disk.written == ["last.pt"] and why in remedy.lost()


def test_a_buffer_is_written_at_once(remedy: Background, disk: Disk) -> None:
    disk.free.set()
    torch.save({"a": 1}, io.BytesIO())
    assert disk.written == [""] and "no path" in remedy.lost()


def test_a_file_that_is_there_is_left_alone_and_a_new_one_is_written(disk: Disk, tmp_path: Path) -> None:
    disk.free.set()
    told: list[None] = []
    remedy = Skipped(SimpleNamespace(calls=SimpleNamespace(files_saved=1, file_saved=lambda: told.append(None))))
    remedy.apply()
    torch.save({"a": 1}, tmp_path / "last.pt")
    assert disk.written == ["last.pt"] and "a file of its own" in remedy.lost()
    torch.save({"a": 2}, tmp_path / "last.pt")
    torch.save({"a": 2}, io.BytesIO())
    assert disk.written == ["last.pt", ""] and torch.load(tmp_path / "last.pt") == {"a": 1}
    assert remedy.lost() == "" and len(told) == 1
    remedy.withdraw()
    assert torch.save == disk.save
    torch.save({"a": 3}, tmp_path / "last.pt")
    assert torch.load(tmp_path / "last.pt") == {"a": 3}


def test_several_ranks_or_no_save_at_all_do_not_suit(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Background(SimpleNamespace(calls=SimpleNamespace(files_saved=0)))
    with pytest.raises(UnsuitableError, match="not called"):
        none.apply()
    with pytest.raises(UnsuitableError, match="not called"):
        Skipped(none.probe).apply()
    none.withdraw()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(UnsuitableError, match="another rank"):
        Background(SimpleNamespace(calls=SimpleNamespace(files_saved=3))).apply()


class Storage:
    """As much of one on a device as the hook looks at."""

    def nbytes(self) -> int:
        return 4_000

    def cpu(self) -> str:
        return "on the host"


def test_copies_from_a_device_are_told_inside_a_save_and_nowhere_else() -> None:
    loop = SimpleNamespace(
        on_training_thread=lambda: True,
        timeline=SimpleNamespace(
            step=0, stack=[0], enter=lambda part: stack.append(part), leave=lambda part: stack.pop()
        ),
    )
    stack = loop.timeline.stack
    calls = Calls(
        SimpleNamespace(record=lambda kind, /, **fields: None),
        loop,
        SimpleNamespace(here=lambda depth: 7, asked_in=lambda *_: None, number=lambda place: -1),
        lambda hook, function: function,
    )
    from perfdoctor.injected._perfdoctor_probe.timeline import CHECKPOINT

    copied = calls.wrap("save.copy", Storage.cpu, CHECKPOINT, calls.began_within)
    save = calls.wrap("save", lambda storages: [copied(storage) for storage in storages], CHECKPOINT)
    assert copied(Storage()) == "on the host" and not calls.totals
    assert save([Storage(), Storage()]) == ["on the host"] * 2
    count, _, size = calls.totals["save.copy", 7]
    assert (count, size) == (2, 8_000) and calls.totals["save", 7][0] == 1
