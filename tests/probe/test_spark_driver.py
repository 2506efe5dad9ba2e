"""What a driver of Spark's ships to its executors, and what those do with it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from observing import bare_environment

from perfdoctor.injected._perfdoctor_probe import channel, spark
from perfdoctor.injected._perfdoctor_probe.imports import Imports
from perfdoctor.launch.control import ControlServer, Rank
from perfdoctor.launch.environment import INJECTED
from perfdoctor.recording.reader import ProcessFile


class Server(ControlServer):
    """Remembers the ranks that have called and gone."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.called: set[tuple[int, int]] = set()

    def _drop(self, rank: Rank) -> None:
        self.called.update([(rank.rank, rank.peer)] if rank.step else [])
        super()._drop(rank)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One that a launcher polls."""
    server, over = Server(tmp_path), threading.Event()

    def poll() -> None:
        while not over.is_set():
            server.poll(0.01)

    thread = threading.Thread(target=poll)
    thread.start()
    yield server
    over.set()
    thread.join()
    server.close()


class Recorder:
    def __init__(self, run: Path) -> None:
        self.run = str(run)
        self.records: list[dict[str, Any]] = []

    def record(self, kind: str, /, **fields: Any) -> None:
        self.records.append({"k": kind, **fields})

    def flush(self) -> None:
        pass


def _context(master: str, path: str = "", **settings: str) -> Any:
    files: list[str] = []
    return SimpleNamespace(
        master=master,
        _conf={"spark.driver.host": "127.0.0.1", **{f"spark.{k.replace('_', '.')}": v for k, v in settings.items()}},
        environment={"PYTHONHASHSEED": "0", **({"PYTHONPATH": path} if path else {})},
        files=files,
        addFile=files.append,
    )


def test_executors_get_a_file_and_its_place_before_the_users_path(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOCTOR_RUN", str(tmp_path))
    monkeypatch.setenv("PERFDOCTOR_WINDOWS", "ops")
    monkeypatch.setenv("PERFDOCTOR_CPUS", "2")
    context = _context("spark://head:7077", "/users/own", executor_resource_gpu_amount="4", task_cpus="2")
    recorder = Recorder(tmp_path)
    spark._observe(context, recorder)
    assert recorder.records == [{"k": "spark", "master": "spark", "executor_gpus": 4.0, "task_cpus": 2.0}]
    (shipped,) = context.files
    environment = context.environment
    assert environment["PYTHONPATH"] == f"{Path(shipped).name}:/users/own"
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment["PERFDOCTOR_RUN"] == str(tmp_path)
    assert environment["PERFDOCTOR_WINDOWS"] == "ops"
    assert "PERFDOCTOR_CPUS" not in environment, "it is a number of this machine"
    assert environment[channel.VARIABLE].partition("@")[2].startswith("127.0.0.1:")


def test_a_local_cluster_needs_no_way_home(server: Server, tmp_path: Path) -> None:
    context = _context("local-cluster[2,1,1024]")
    spark._observe(context, Recorder(tmp_path))
    assert len(context.files) == 1
    assert channel.VARIABLE not in context.environment


def test_local_mode_is_left_alone(tmp_path: Path) -> None:
    context, recorder = _context("local[2]"), Recorder(tmp_path)
    spark._observe(context, recorder)
    assert context.files == [] and list(context.environment) == ["PYTHONHASHSEED"]
    assert recorder.records == [{"k": "spark", "master": "local"}]


def test_a_context_is_made_as_without_us_whatever_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class SparkContext:
        def _do_init(self, master: str, *, conf: dict[str, str]) -> None:
            self.master, self._conf = master, conf

    imports = Imports()
    monkeypatch.setattr(spark, "IMPORTS", imports)
    recorder = Recorder(tmp_path / "missing")
    spark.when_imported(recorder)
    (wrap,) = imports.awaited.values()
    wrap(SimpleNamespace(SparkContext=SparkContext))
    context = SparkContext()
    context._do_init("spark://head:7077", conf={"spark.driver.host": "head"})
    assert context.master == "spark://head:7077"
    assert [record["k"] for record in recorder.records] == ["spark", "fault"]
    assert recorder.records[1]["hook"] == "spark"


def test_who_waits_for_a_module_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    imports = Imports()
    imports.awaited = {"quopri": told.append, "nowhere": told.append}
    monkeypatch.delitem(sys.modules, "quopri", raising=False)
    imports.watch()
    try:
        import quopri
        import stringprep  # noqa: F401
    finally:
        imports.stop()
    assert told == [quopri]
    assert list(imports.awaited) == ["nowhere"]


@pytest.mark.parametrize("shared", [False, True])
def test_a_shipped_probe_reports_by_tcp_from_another_machine(server: Server, tmp_path: Path, shared: bool) -> None:
    """With a directory that it shares with the launcher, where a Unix socket leads nowhere, and without one."""
    context = _context("spark://head:7077")
    spark._observe(context, Recorder(tmp_path))
    job = tmp_path / "train.py"
    job.write_text(
        "import torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(30):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "print('learnt', [p.abs().max().item() < 100 for p in model.parameters()])\n"
    )
    # A worker that has the installed probe on its path too starts one of them.
    path = f"{context.files[0]}:{INJECTED}"
    run = tmp_path / "there"
    if shared:
        run.mkdir()
    away = {"PYTHONPATH": path, "PERFDOCTOR_RUN": str(run), "PERFDOCTOR_WINDOWS": "", "RANK": "5"}
    way = {channel.VARIABLE: context.environment[channel.VARIABLE]}
    ended = subprocess.run(
        [sys.executable, str(job)], env=bare_environment(away | way), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "learnt [True, True]\n"
    while server.receiving or not server.called:
        threading.Event().wait(0.01)
    assert server.called == {(5, 0)}
    (path_of,) = (run if shared else tmp_path).glob("process-*.jsonl")
    file = ProcessFile(path_of)
    file.refresh()
    recording = file.recording()
    assert recording is not None and recording.problems == () and recording.faults == ()
    assert len(recording.steps) == 30
    assert recording.exit is not None
    assert run.exists() == shared
