"""Spark for real: ranks under TorchDistributor, in local mode, in a local-cluster, and with a master and a worker that
were there before the job, whose machine sees some of the launcher's directories and not others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

distributor = pytest.importorskip("pyspark.ml.torch.distributor")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

DRIVER = Path(__file__).parent / "jobs" / "spark_driver.py"
LONGER_THAN_ANYBODY_LOOKS = "100000"
_MARK = "PERFDOCTOR_TEST_MARK"
_PATIENCE_S = 150


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    runs: Path
    left: tuple[str, ...]
    """Command lines of its processes that still run."""

    @property
    def report(self) -> Mapping[str, Any]:
        return json.loads((self.runs.parent / f"{self.runs.name}.json").read_text())

    @property
    def findings(self) -> dict[str, Mapping[str, Any]]:
        return {finding["id"]: finding for check in self.report["checks"] for finding in check["findings"]}

    @property
    def alarming(self) -> list[str]:
        return [name for name, finding in self.findings.items() if finding["severity"] in ("warning", "error")]

    @property
    def results(self) -> list[str]:
        """What the job itself has printed."""
        return [line for line in self.stdout.splitlines() if line.startswith(("result", "path"))]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Of all processes."""
        files = self.runs.glob("*/process-*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    @property
    def ranks(self) -> list[int]:
        return sorted(record["rank"] for record in self.records if record["k"] == "settings")


class Machine:
    """Starts commands with a Spark of its own, and finds what is left of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.hidden = directory / "hidden"
        self.home = directory / "spark"
        self.mark = uuid.uuid4().hex
        # Spark writes its `work` beside its programs.
        installed = Path(distributor.__file__).parents[2]
        for folder in (self.home, self.hidden, directory / "library", directory / "scratch", directory / "here"):
            folder.mkdir()
        for name in ("bin", "jars", "python", "sbin"):
            (self.home / name).symlink_to(installed / name)
        (directory / "library" / "of_the_users.py").write_text("def scale(number):\n    return float(number)\n")
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "TMPDIR": str(directory / "scratch"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory / "scratch"),
            "XDG_STATE_HOME": str(directory / "state"),
            # Tests that run beside this one are neighbours, and found as such.
            "PERFDOCTOR_CHECK_IGNORE": "PD12.cpu-contention,PD12.steal",
            _MARK: self.mark,
        }

    def daemon(self, *words: str, within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """A part of Spark's that runs before the job, and knows nothing of it."""
        environment = {k: v for k, v in self.environment.items() if not k.startswith(("PERFDOCTOR_CHECK", "PYSPARK"))}
        with (self.directory / f"{words[0]}.log").open("wb") as log:
            command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
            return subprocess.Popen([*within, *command], env=environment, stdout=log, stderr=subprocess.STDOUT)

    def said(self, daemon: str, text: str) -> str:
        """What follows `text` in the log of a daemon, once it is there."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            log = (self.directory / f"{daemon}.log").read_text()
            if text in log:
                return log.partition(text)[2].split(None, 1)[0]
            time.sleep(0.1)
        raise TimeoutError(f"{daemon} did not start: {log}")

    def run(self, *words: str | Path) -> Ended:
        here = self.directory / "here"
        ended = subprocess.run(
            [*map(str, words)],
            env=self.environment,
            cwd=here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
            text=True,
        )
        runs = next((Path(word) for before, word in pairwise(words) if before == "--runs"), here)
        return Ended(ended.returncode, ended.stdout, ended.stderr, runs, self.left())

    def check(self, runs: Path, *words: str | Path) -> Ended:
        """`perfdoctor check WORDS`."""
        outputs = ("--runs", runs, "--output", f"json:{runs}.json")
        return self.run(sys.executable, "-m", "perfdoctor", "check", *outputs, *words)

    def left(self) -> tuple[str, ...]:
        """Command lines of what is no daemon of the cluster's, once it had time to end: Spark ends its executors some
        time after the driver has ended."""
        deadline = time.monotonic() + 10
        while (left := self._commands()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _commands(self) -> tuple[str, ...]:
        daemons = ("deploy.master.Master", "deploy.worker.Worker")
        return tuple(command for _, command in self.living() if not any(name in command for name in daemons))

    def living(self) -> Iterator[tuple[int, str]]:
        """What runs of all that was started here: number and command line."""
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{_MARK}={self.mark}".encode() in environ.read_bytes():
                    command = (environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    yield int(environ.parent.name), command
            except OSError:
                continue


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("spark"))
    yield machine
    for number, _ in machine.living():
        os.kill(number, signal.SIGKILL)


def _in_a_namespace(hidden: Path) -> tuple[str, ...]:
    """What a command is started with so that it finds `hidden` empty; () where this user may not have that."""
    within = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "sh")
    allowed = shutil.which("unshare") and subprocess.run([*within, "true"], capture_output=True, check=False)
    return within if allowed and allowed.returncode == 0 else ()


@pytest.fixture(scope="module")
def standalone(machine: Machine) -> Iterator[str]:
    """The address of a master with one worker."""
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    master = machine.daemon("master.Master", "--port", "0", *here)
    try:
        address = machine.said("master.Master", "Starting Spark master at ")
        within = _in_a_namespace(machine.hidden)
        machine.daemon("worker.Worker", "--cores", "2", "--memory", "2g", *here, address, within=within)
        machine.said("worker.Worker", "Successfully registered")
        yield address
    finally:
        master.terminate()
        master.wait()


@pytest.fixture(scope="module")
def to_the_end(machine: Machine, standalone: str) -> Ended:
    return machine.check(machine.directory / "runs", "--to-end", "--", *_submitted(machine, standalone, "60", "well"))


@pytest.fixture(scope="module")
def unseen(machine: Machine, standalone: str) -> Ended:
    """An ill job whose executors do not see the run directory."""
    return machine.check(
        machine.hidden / "runs", "--", *_submitted(machine, standalone, LONGER_THAN_ANYBODY_LOOKS, "ill")
    )


def _submitted(machine: Machine, master: str, *words: str) -> list[str]:
    path = f"spark.executorEnv.PYTHONPATH={machine.directory / 'library'}"
    return [str(machine.home / "bin/spark-submit"), "--master", master, "--conf", path, str(DRIVER), "", *words]


def test_executors_of_a_cluster_that_was_there_give_the_same_results(
    machine: Machine, standalone: str, to_the_end: Ended
) -> None:
    bare = machine.run(*_submitted(machine, standalone, "60", "well"))
    assert to_the_end.results == bare.results
    assert len(bare.results) == 2
    assert to_the_end.report["integrity"]["job_end"]["exit_code"] == bare.code == 0
    assert to_the_end.left == bare.left == ()


def test_a_healthy_job_on_executors_is_clear(machine: Machine, to_the_end: Ended) -> None:
    assert to_the_end.ranks == [0, 1]
    assert to_the_end.alarming == []
    assert to_the_end.code == 0
    assert list((machine.directory / "here").iterdir()) == [], "the user's directory is as it was"


def test_executors_that_do_not_see_the_run_directory_report_all_the_same(machine: Machine, unseen: Ended) -> None:
    _is_named(unseen)
    assert sum(record["n"] for record in unseen.records if record["k"] == "steps") > 60
    (shipped,) = unseen.runs.glob("*/perfdoctor_probe.zip")
    assert shipped.stat().st_mode & 0o777 == 0o400
    assert "token" not in {key for record in unseen.records for key in record}


def test_a_local_cluster_replaces_the_path_of_its_executors(machine: Machine) -> None:
    words = ("--conf", f"spark.executorEnv.PYTHONPATH={machine.directory / 'library'}")
    submit = (machine.home / "bin/spark-submit", "--master", "local-cluster[2,1,1024]", *words)
    _is_named(machine.check(machine.directory / "runs-2", "--", *submit, DRIVER, "", LONGER_THAN_ANYBODY_LOOKS, "ill"))


def test_a_healthy_job_in_local_mode_is_clear_and_ended_with_its_driver(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(machine.environment, "PYTHONPATH", str(machine.directory / "library"))
    seen = machine.check(machine.directory / "runs-3", DRIVER, "local[2]", LONGER_THAN_ANYBODY_LOOKS, "well")
    _was_ended(seen)
    assert seen.alarming == []
    assert list(seen.runs.glob("*/perfdoctor_probe.zip")) == [], "what inherits the environment needs nothing shipped"


def _was_ended(seen: Ended) -> None:
    """Having seen enough, in one line, and with all that belongs to it."""
    assert "Spark was ended with it" in seen.stderr
    assert "Traceback" not in seen.stdout + seen.stderr
    assert "barrier ResultStage" not in seen.stdout + seen.stderr
    assert seen.results == []
    assert seen.report["integrity"]["job_end"]["kind"] == "stopped"
    assert seen.left == ()


def _is_named(seen: Ended) -> None:
    """Rank 1, which makes its batches itself, and slowly."""
    _was_ended(seen)
    assert seen.ranks == [0, 1]
    assert seen.code == 1
    finding = seen.findings["PD03.too-few-workers"]
    assert finding["severity"] == "error"
    assert finding["rank_note"].startswith("rank 1")
    assert finding["location"]["file"].endswith("spark_driver.py")
