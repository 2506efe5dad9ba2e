"""Ray for real: a cluster that was there before the job, whose second node reaches nothing of ours; a job's own."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.exits import Exit
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import Recording
from perfdoctor.recording.reader import read

pytest.importorskip("ray.train")

pytestmark = pytest.mark.e2e

JOBS = Path(__file__).parent / "jobs"
NODE = "perfdoctor-test-node"
_CLI = ("-m", "ray.scripts.scripts")
_RAY = (sys.executable, *_CLI, "start", "--block", "--disable-usage-stats")
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
    def notes(self) -> str:
        return "\n".join(note["message"] for note in self.report["integrity"]["notes"])

    @property
    def recording(self) -> Recording:
        (run,) = (self.here / "runs").iterdir()
        return read(RunDirectory(run))

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
            # Seconds between two looks at the workers, for which every report of theirs waits.
            "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
            "RAY_USAGE_STATS_ENABLED": "0",
            _MARK: self.mark,
        }

    def place(self) -> Path:
        """An empty directory."""
        return Path(tempfile.mkdtemp(dir=self.runs))

    def python(self, *words: str | Path, address: str = "", here: Path | None = None) -> Ended:
        here = here or self.place()
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
        here = self.place()
        return self.python(*checking(here), *words, address=address, here=here)

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


def checking(here: Path) -> tuple[str, ...]:
    """What python is to be told for a check that leaves everything in a directory."""
    places = ("--runs", f"{here}/runs", "--output", f"json:{here}/report.json")
    return ("-m", "perfdoctor", "check", *places, "--ignore", "PD12.cpu-contention,PD12.steal")


@dataclass(frozen=True)
class Cluster:
    machine: Machine
    address: str
    files: Path
    """Ray's own, of both nodes."""
    dashboard: str
    """Where jobs are submitted; "" where it is not installed."""

    def check(self, *words: str | Path) -> Ended:
        return self.machine.check(*words, address=self.address)

    def submission(self) -> tuple[str, ...]:
        """What python is to be told before a command that is to run on the cluster."""
        return (*_CLI, "job", "submit", "--address", self.dashboard, "--", sys.executable)

    def submit_check(self, *words: str | Path) -> Ended:
        here = self.machine.place()
        return self.machine.python(*self.submission(), *checking(here), *words, here=here)

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


def _free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in listening:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in listening]


def _agent(port: str) -> tuple[str, ...]:
    return ("--num-cpus", "1", "--dashboard-agent-listen-port", port)


def _has_dashboard() -> bool:
    try:
        importlib.import_module("ray.dashboard.optional_deps")
    except ImportError:
        return False
    return True


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Iterator[Cluster]:
    """A head and a second node, with a CPU each. The second has another name and boot id, as another machine has, and
    sees nothing in `machine.runs`."""
    apart = ["unshare", "--mount", "--uts", "sh", "-c"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a node that does not see this one's files needs `unshare --mount`, which is not allowed here")
    port, *others = _free_ports(5)
    address, files = f"127.0.0.1:{port}", machine.directory / "ray"
    head = ("--head", "--port", port, "--temp-dir", str(files), "--ray-client-server-port", others[0])
    dashboard = ""
    if _has_dashboard():
        head += ("--include-dashboard", "true", "--dashboard-port", others[1])
        dashboard = f"http://127.0.0.1:{others[1]}"
    else:
        head += ("--include-dashboard", "false")
    boot = machine.directory / "boot_id"
    boot.write_text(f"{uuid.uuid4()}\n")
    script = f"mount -t tmpfs none {machine.runs} && mount --bind {boot} /proc/sys/kernel/random/boot_id && "
    script += f'hostname {NODE} && exec "$@"'
    node = ("--address", address, "--node-ip-address", "127.0.0.2")
    for name, words in (
        ("head", (*_RAY, *head, *_agent(others[2]), "--node-ip-address", "127.0.0.1")),
        ("node", (*apart, script, "node", *_RAY, *node, *_agent(others[3]))),
    ):
        file = machine.directory / f"{name}.log"
        with file.open("w") as log:
            subprocess.Popen(words, env=machine.environment, cwd=machine.directory, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_S
        while "This command will now block" not in file.read_text():
            assert time.monotonic() < deadline, file.read_text()
            time.sleep(0.2)
    yield Cluster(machine, address, files, dashboard)
    machine.end_all()


@pytest.fixture(scope="module")
def both(cluster: Cluster) -> tuple[Ended, Ended]:
    """Two jobs at the same time, each with a rank whose data are late: another one. The second job is submitted."""
    submit = cluster.submit_check if cluster.dashboard else cluster.check
    with ThreadPoolExecutor() as pool:
        first = pool.submit(cluster.check, "--steps", "40", JOBS / "ray_ddp.py", "100000", "--late", "1")
        second = pool.submit(submit, "--steps", "40", JOBS / "ray_ddp.py", "100000", "--late", "0")
        return first.result(), second.result()


@pytest.fixture
def ill(both: tuple[Ended, Ended]) -> Ended:
    return both[0]


def test_the_late_rank_is_named_with_its_node_and_cause(ill: Ended) -> None:
    late = ill.findings["PD03.too-few-workers"]
    assert late["rank_note"].startswith(f"rank 1 on {_host_of(1, ill)}"), ill.stdout
    assert ill.report["environment"]["rank"] == 1
    assert ill.code == 1
    assert ill.report["integrity"]["job_end"]["kind"] == "stopped"


def _host_of(rank: int, ended: Ended) -> str:
    return next(one.header.host for one in ended.recording.ranks if one.rank == rank)


def test_two_jobs_at_the_same_time_are_not_mixed_up(both: tuple[Ended, Ended]) -> None:
    for late, job in ((1, both[0]), (0, both[1])):
        assert job.report["environment"]["rank"] == late, job.stdout
        assert job.findings["PD03.too-few-workers"]["rank_note"].startswith(f"rank {late} on ")
        assert [one.rank for one in job.recording.ranks] == [0, 1]
        assert len({one.ray.run for one in job.recording.ranks if one.ray}) == 1
        assert job.report["integrity"]["job_end"]["kind"] == "stopped"
    assert len({one.ray.run for job in both for one in job.recording.ranks if one.ray}) == 2


def test_a_submitted_check_sees_all_nodes_and_ends_as_one_that_is_typed(
    both: tuple[Ended, Ended], cluster: Cluster
) -> None:
    if not cluster.dashboard:
        pytest.skip("`ray job submit` needs Ray's dashboard: pip install 'ray[default]'")
    submitted = both[1]
    assert {one.header.host for one in submitted.recording.ranks} == {NODE, os.uname().nodename}
    assert "Ray was ended with it" in submitted.stdout  # the supervisor's: stderr of the job too
    assert "Traceback" not in submitted.stdout
    assert submitted.code == 1  # Ray's for a job that does not end with 0
    assert "exit code 1" in submitted.stdout + submitted.stderr


def test_a_submission_from_outside_says_what_to_type_instead(cluster: Cluster) -> None:
    if not cluster.dashboard:
        pytest.skip("`ray job submit` needs Ray's dashboard: pip install 'ray[default]'")
    checked = cluster.machine.check("--", sys.executable, *cluster.submission(), "-c", "print('learnt nothing')")
    assert checked.code == Exit.NOT_MEASURABLE, checked.stdout + checked.stderr
    assert checked.told == ["learnt nothing"]
    assert "name perfdoctor behind it instead: `ray job submit -- perfdoctor check ...`" in checked.stderr
    assert "--python PATH" not in checked.stderr


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


def test_of_a_training_that_ray_starts_anew_the_last_attempt_is_judged(cluster: Cluster) -> None:
    words = ("100000", "--late", "1", "--name", "anew", "--raise-at", "60", "--retries", "5")
    checked = cluster.check("--steps", "40", JOBS / "ray_ddp.py", *words)
    assert checked.report["integrity"]["job_end"]["kind"] == "stopped", checked.stdout + checked.stderr
    assert checked.report["anatomy"]["count"] >= 40
    assert checked.report["environment"]["rank"] == 1
    assert "the report is about the last attempt" in checked.notes
    assert "an earlier attempt failed: rank 1 raised ValueError: a batch that cannot be read" in checked.notes
    # What perfdoctor ends is no failure that Ray makes good.
    groups = {one.ray.group for one in checked.recording.processes if one.ray is not None}
    assert len(groups) == 2


def test_of_a_worker_that_is_killed_the_rank_is_named_and_what_came_home_is_judged(cluster: Cluster) -> None:
    words = ("100000", "--late", "1", "--name", "killed", "--kill-at", "150")
    checked = cluster.check("--to-end", JOBS / "ray_ddp.py", *words)
    assert checked.code == Exit.JOB_FAILED, checked.stdout + checked.stderr
    assert checked.report["integrity"]["job_end"]["kind"] == "crashed"
    assert "rank 1 died" in checked.report["integrity"]["job_end"]["exception"]
    assert "rank 1 died" in checked.stdout
    assert checked.findings["PD03.too-few-workers"]["rank_note"].startswith("rank 1 on ")
    assert cluster.keys() == ["[]"]


def _stored(machine: Machine, name: str) -> set[str]:
    """What lies in the storage of a run, with times in names left out."""
    place = machine.directory / "results" / name
    paths = (str(path.relative_to(place)) for path in place.rglob("*"))
    return {re.sub(r"checkpoint_[-\d_.]+", "checkpoint", path) for path in paths}


@pytest.fixture(scope="module")
def healed(cluster: Cluster) -> tuple[Ended, Ended]:
    """Without perfdoctor and with it: like ranks, which save a checkpoint every ten steps."""
    job = (JOBS / "ray_ddp.py", "150", "--save-every", "10", "--name")
    bare = cluster.machine.python(*job, "bare", address=cluster.address)
    return bare, cluster.check("--to-end", *job, "healed")


def test_a_healed_job_ends_as_it_would_have(healed: tuple[Ended, Ended], cluster: Cluster) -> None:
    bare, checked = healed
    assert bare.code == 0, bare.stderr
    assert checked.report["integrity"]["job_end"]["kind"] == "finished"
    assert checked.told == bare.told
    assert len(checked.told) == 1
    assert {"PD19.late-rank", "PD03.too-few-workers"}.isdisjoint(checked.findings)
    assert "_perfdoctor_probe" not in checked.stdout + checked.stderr
    assert sum('"k":"steps"' in text for _, text in checked.headers()) == 2
    assert cluster.keys() == ["[]"]
    assert _stored(cluster.machine, "healed") == _stored(cluster.machine, "bare")


def test_checkpoints_that_go_to_rays_storage_are_told_with_their_line(healed: tuple[Ended, Ended]) -> None:
    found = healed[1].findings["PD14.frequent-checkpoints"]
    numbers = {one["name"]: one["value"] for one in found["evidence"]}
    assert numbers["bytes"] >= 8 << 20
    assert numbers["every"] == 10
    lines = Path(found["location"]["file"]).read_text().splitlines()
    assert "ray.train.report(" in lines[found["location"]["line"] - 1]
    for rank in healed[1].recording.ranks:
        kinds = {call.kind for call in rank.calls}
        assert {"save", "dist.report", "log:ray.train.report"} <= kinds


def test_trials_are_jobs_of_their_own(machine: Machine) -> None:
    checked = machine.check("--steps", "60", JOBS / "ray_trials.py")
    assert checked.report["anatomy"]["count"] >= 60, checked.stderr
    assert "2 trainings ran under Ray, each a job of its own" in checked.stdout + json.dumps(checked.report)
    # The one with the shorter pause has taken more steps; the other one is not compared with it.
    assert checked.report["anatomy"]["step_ms"] < 50
    assert "slowest of" not in checked.stdout
    assert "the driver went on" not in checked.stdout
