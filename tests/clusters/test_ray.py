"""Ray for real: a cluster that was there before the job, whose second node reaches nothing of ours; a job's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.train")

pytestmark = pytest.mark.e2e

JOBS = Path(__file__).parent / "jobs"
NODE = "perfdoctor-test-node"
_RAY = (sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
_MARK = "PERFDOCTOR_TEST_MARK"
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    here: Path

    @property
    def report(self) -> Mapping[str, Any]:
        return json.loads((self.here / "report.json").read_text())

    @property
    def findings(self) -> dict[str, Mapping[str, Any]]:
        return {finding["id"]: finding for check in self.report["checks"] for finding in check["findings"]}

    @property
    def told(self) -> list[str]:
        """What the job itself has printed."""
        return [line for line in self.stdout.splitlines() if line.startswith("learnt")]

    def headers(self) -> Iterator[tuple[Mapping[str, Any], str]]:
        """The first record of each process, and its file's text."""
        for file in self.here.glob("runs/*/process-*.jsonl"):
            text = file.read_text()
            yield json.loads(text.partition("\n")[0]), text


class Machine:
    """Starts commands in a clean environment, and finds what is left of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runs = directory / "runs"
        self.runs.mkdir()
        self.mark = uuid.uuid4().hex
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(directory),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            _MARK: self.mark,
        }

    def python(self, *words: str | Path, address: str = "") -> Ended:
        here = Path(tempfile.mkdtemp(dir=self.runs))
        ended = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=here,
            env={**self.environment, **({"RAY_ADDRESS": address} if address else {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr, here)

    def check(self, *words: str | Path, address: str = "") -> Ended:
        options = ("--runs", "runs", "--output", "json:report.json", "--ignore", "PD12.cpu-contention,PD12.steal")
        return self.python("-m", "perfdoctor", "check", *options, *words, address=address)

    def living(self) -> dict[int, str]:
        """Processes that carry our mark: their numbers and commands."""
        found = {}
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{_MARK}={self.mark}".encode() in environ.read_bytes():
                    found[int(environ.parent.name)] = (environ.parent / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found

    def end_all(self) -> None:
        for pid in self.living():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    # Ray's sockets lie in it, and their names hold 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="pd", dir="/tmp"))
    machine = Machine(directory)
    yield machine
    machine.end_all()
    shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Cluster:
    machine: Machine
    address: str
    files: Path
    """Ray's own, of both nodes."""

    def check(self, *words: str | Path) -> Ended:
        return self.machine.check(*words, address=self.address)

    def keys(self) -> list[str]:
        """What is left in its store of what went home."""
        code = (
            "import sys; from ray._raylet import GcsClient; "
            "print(GcsClient(address=sys.argv[1]).internal_kv_keys(b'', b'perfdoctor', 5))"
        )
        return self.machine.python("-c", code, self.address).stdout.splitlines()

    def workers(self) -> list[str]:
        """Those that train, or have others train; Ray keeps idle ones for the next job."""
        names = ("RayTrainWorker", "TrainController")
        return [command for command in self.machine.living().values() if any(name in command for name in names)]


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Iterator[Cluster]:
    """A head and a second node, with a CPU each. The second has another name, and sees nothing in `machine.runs`."""
    apart = ["unshare", "--mount", "--uts", "sh", "-c"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a node that does not see this one's files needs `unshare --mount`, which is not allowed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, files = f"127.0.0.1:{port}", machine.directory / "ray"
    head = ("--head", "--port", str(port), "--temp-dir", str(files), "--include-dashboard", "false")
    script = f'mount -t tmpfs none "$0" && hostname {NODE} && exec "$@"'
    node = ("--address", address, "--node-ip-address", "127.0.0.2")
    for name, words in (
        ("head", (*_RAY, *head, "--num-cpus", "1", "--node-ip-address", "127.0.0.1")),
        ("node", (*apart, script, str(machine.runs), *_RAY, *node, "--num-cpus", "1")),
    ):
        file = machine.directory / f"{name}.log"
        with file.open("w") as log:
            subprocess.Popen(words, env=machine.environment, cwd=machine.directory, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_S
        while "This command will now block" not in file.read_text():
            assert time.monotonic() < deadline, file.read_text()
            time.sleep(0.2)
    yield Cluster(machine, address, files)
    machine.end_all()


@pytest.fixture(scope="module")
def ill(cluster: Cluster) -> Ended:
    return cluster.check("--steps", "40", JOBS / "ray_ddp.py", "100000", "1")


def test_the_late_rank_is_named_wherever_it_ran(ill: Ended) -> None:
    assert "rank 1" in ill.findings["PD19.late-rank"]["rank_note"], ill.stdout
    assert ill.report["environment"]["rank"] == 1
    assert ill.code == 1
    assert ill.report["integrity"]["job_end"]["kind"] == "stopped"


def test_a_node_without_perfdoctor_sends_its_rank_home(ill: Ended) -> None:
    hosts = {header["host"]: text for header, text in ill.headers() if '"k":"steps"' in text}
    assert len(hosts) == 2
    assert '"k":"exit"' in hosts[NODE]  # up to its last record
    assert '"unseen"' not in hosts[NODE]


def test_ray_is_ended_without_a_word_and_nothing_is_left(ill: Ended, cluster: Cluster) -> None:
    assert "Ray was ended with it" in ill.stderr
    assert "Traceback" not in ill.stdout + ill.stderr
    assert "learnt" not in ill.stdout
    assert cluster.keys() == ["[]"]
    assert list(cluster.files.glob("session_*/perfdoctor-*")) == []
    deadline = time.monotonic() + _PATIENCE_S
    while cluster.workers() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert cluster.workers() == []


def test_a_healed_job_ends_as_it_would_have(cluster: Cluster) -> None:
    bare = cluster.machine.python(JOBS / "ray_ddp.py", "150", address=cluster.address)
    healed = cluster.check("--to-end", JOBS / "ray_ddp.py", "150")
    assert bare.code == healed.code == 0, healed.stderr
    assert healed.told == bare.told
    assert len(healed.told) == 1
    assert "PD19.late-rank" not in healed.findings
    assert healed.report["integrity"]["job_end"]["kind"] == "finished"
    assert "_perfdoctor_probe" not in healed.stdout + healed.stderr
    assert sum('"k":"steps"' in text for _, text in healed.headers()) == 2
    assert cluster.keys() == ["[]"]


def test_trials_are_jobs_of_their_own(machine: Machine) -> None:
    checked = machine.check("--steps", "60", JOBS / "ray_trials.py")
    assert checked.report["anatomy"]["count"] >= 60, checked.stderr
    assert "2 trainings ran under Ray, each a job of its own" in checked.stdout + json.dumps(checked.report)
    # The one with the shorter pause has taken more steps; the other one is not compared with it.
    assert checked.report["anatomy"]["step_ms"] < 50
    assert "slowest of" not in checked.stdout
    assert "the driver went on" not in checked.stdout
