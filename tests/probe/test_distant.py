"""A process that cannot reach the run directory: what it records comes home, and messages pass both ways."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe import control, distant
from perfdoctor.injected._perfdoctor_probe.engines import gathering, outpost, post, ray_driver
from perfdoctor.launch.control import ControlServer

pytestmark = pytest.mark.e2e

_PATIENCE_S = 60.0


class Client:
    """The key-value store of a cluster, in a dictionary."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.fails = False

    def internal_kv_put(self, key: bytes, value: bytes, overwrite: bool, namespace: bytes, timeout: float) -> None:
        if self.fails:
            raise TimeoutError
        self.values[key] = value

    def internal_kv_get(self, key: bytes, namespace: bytes, timeout: float) -> bytes | None:
        return self.values.get(key)

    def internal_kv_keys(self, prefix: bytes, namespace: bytes, timeout: float) -> list[bytes]:
        return [key for key in list(self.values) if key.startswith(prefix)]

    def internal_kv_del(self, key: bytes, by_prefix: bool, namespace: bytes, timeout: float) -> None:
        for name in self.internal_kv_keys(key, namespace, timeout) if by_prefix else [key]:
            self.values.pop(name, None)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client()
    monkeypatch.setattr(post, "opened", lambda token, patience_s: post.Store(client, token))
    monkeypatch.setattr(post, "POLL_S", 0.02)
    return client


def _wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def ends(client: Client, tmp_path: Path) -> Iterator[tuple[outpost.Outpost, gathering.Gathering, ControlServer]]:
    """The two ends, and the launcher that knows of neither."""
    home = tmp_path / "run"
    home.mkdir()
    server = ControlServer(home)
    there = outpost.Outpost(str(tmp_path / "there"), "token")
    here = gathering.Gathering(str(home), "token", lambda: None)
    yield there, here, server
    there._at_exit()
    here._at_exit()
    server.close()


def test_what_is_written_there_is_found_here(ends: Any, tmp_path: Path) -> None:
    file = tmp_path / "there" / "process-7-1.jsonl"
    file.write_bytes(b"one\n")
    home = tmp_path / "run" / "process-7-1.jsonl"
    _wait(lambda: home.exists() and home.read_bytes() == b"one\n")
    with file.open("ab") as more:
        more.write(b"two\n")
    _wait(lambda: home.read_bytes() == b"one\ntwo\n")
    assert home.stat().st_mode & 0o077 == 0
    assert (tmp_path / "there").stat().st_mode & 0o077 == 0


def test_nothing_else_is_written_here(ends: Any, tmp_path: Path) -> None:
    (tmp_path / "there" / "run.json").write_text("{}")
    (tmp_path / "there" / "process-8-1.jsonl").write_text("x\n")
    _wait((tmp_path / "run" / "process-8-1.jsonl").exists)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_distant_rank_is_one_like_the_others(ends: Any, client: Client, tmp_path: Path) -> None:
    _, _, server = ends
    rank = control.Control(str(tmp_path / "there"), {"k": "hello", "pid": 7, "rank": 1, "world": 2})

    def heard(what: Callable[[], object]) -> None:
        def polled() -> object:
            server.poll(0.01)
            return server.ranks and what()

        _wait(polled)

    heard(lambda: server.ranks[0].pid == 7)
    assert server.ranks[0].rank == 1
    assert server.ranks[0].lag_s == post.LAG_S
    rank.send({"k": "beat", "step": 5})
    heard(lambda: server.ranks[0].step == 5)
    server.send(server.ranks[0], {"do": "stop", "step": 9})
    commands: list[Any] = []
    _wait(lambda: commands.extend(rank.commands()) or commands)
    assert commands == [{"do": "stop", "step": 9}]
    # Of an attempt that failed nobody says that it is held.
    ends[1].distant["lost"] = lost = gathering._Distant()
    lost.hello = {"k": "hello", "rank": 1}
    # Its last word: all that it wrote is here by then, nothing is left there, nor in the cluster.
    (tmp_path / "there" / "process-7-1.jsonl").write_text("last\n")
    rank.tell({"k": "held", "engine": "Ray"})
    heard(lambda: server.engine == "Ray")
    assert (tmp_path / "run" / "process-7-1.jsonl").read_text() == "last\n"
    assert not (tmp_path / "there").exists()
    assert list(client.values) == []
    rank.close()


def test_what_is_seen_off_is_on_its_way(ends: Any, client: Client, tmp_path: Path) -> None:
    there, here, _ = ends
    _wait(lambda: b"token/home" in client.values)
    here._take_in = lambda: None  # nobody takes it in
    (tmp_path / "there" / "process-7-1.jsonl").write_text("last words\n")
    there.see_off()
    assert any(b"last words" in value for value in client.values.values())


def test_what_could_not_be_sent_is_sent_later(ends: Any, client: Client, tmp_path: Path) -> None:
    _wait(lambda: b"token/home" in client.values)
    client.fails = True
    (tmp_path / "there" / "process-7-1.jsonl").write_text("one\n")
    time.sleep(0.1)
    client.fails = False
    _wait((tmp_path / "run" / "process-7-1.jsonl").exists)
    assert (tmp_path / "run" / "process-7-1.jsonl").read_text() == "one\n"


def test_a_driver_that_ends_takes_in_the_rest_and_tidies_up(client: Client, tmp_path: Path) -> None:
    here = gathering.Gathering(str(tmp_path), "token", lambda: None)
    _wait(lambda: here.store is not None)
    here.over = True  # its thread looks no more
    time.sleep(0.1)
    client.values[b"token/up/a/00000000"] = post.packed([("process-7-1.jsonl", 0, b"rest\n")], [])
    client.values[b"other/up/a/00000000"] = b""
    here.over = False
    here._at_exit()
    assert (tmp_path / "process-7-1.jsonl").read_text() == "rest\n"
    assert list(client.values) == [b"other/up/a/00000000"]


def test_a_large_file_goes_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "_LARGEST", 4)
    portions = post.divided([("a", 0, b"123456"), ("b", 10, b"78")])
    assert portions == [[("a", 0, b"1234")], [("a", 4, b"56"), ("b", 10, b"78")]]
    assert post.divided([]) == [[]]
    assert post.unpacked(post.packed(portions[1], [{"k": "beat"}])) == (portions[1], [{"k": "beat"}])


def test_a_rank_that_says_nothing_any_more_is_let_go(
    ends: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there, _, server = ends
    monkeypatch.setattr(post, "ALIVE_S", 0.05)
    control.Control(str(tmp_path / "there"), {"k": "hello", "pid": 7, "rank": 1, "world": 2})

    def ranks() -> int:
        server.poll(0.01)
        return len(server.ranks)

    _wait(lambda: ranks() == 1)
    monkeypatch.setattr(post, "SILENCE_S", 1.0)
    there.over = True  # its node is gone
    _wait(lambda: ranks() == 0)


# ---------------------------------------------------------------------------------------------------------
# Where a process records


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(distant, "token", "")
    monkeypatch.setenv("PERFDOCTOR_RUN", "/nowhere/run")
    monkeypatch.setattr(sys, "orig_argv", ["python", "default_worker.py", "--raylet-name=/tmp/ray/s1/sockets/raylet"])
    return monkeypatch


def test_a_worker_that_reaches_the_run_directory_writes_into_it(worker: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker.setenv(distant.VARIABLE, f"abc:{distant.boot()}")
    assert distant.place(str(tmp_path)) == str(tmp_path)
    assert distant.token == ""
    assert distant.VARIABLE not in os.environ


@pytest.mark.parametrize("boot", ["boot", "another"])
def test_elsewhere_it_records_beside_rays_own_files(worker: pytest.MonkeyPatch, tmp_path: Path, boot: str) -> None:
    run = str(tmp_path / "missing") if boot == "boot" else str(tmp_path)
    worker.setenv(distant.VARIABLE, "abc:boot")
    worker.setattr(distant, "boot", lambda: boot)
    place = distant.place(run)
    assert place.startswith(f"/tmp/ray/s1/perfdoctor-{os.getpid()}-")
    assert distant.token == "abc"
    assert os.environ["PERFDOCTOR_RUN"] == place  # what it starts writes there too


def test_outside_a_cluster_nothing_changes(worker: pytest.MonkeyPatch) -> None:
    worker.delenv(distant.VARIABLE, raising=False)
    assert distant.place("/nowhere/run") == "/nowhere/run"
    assert os.environ["PERFDOCTOR_RUN"] == "/nowhere/run"


# ---------------------------------------------------------------------------------------------------------
# What a driver asks Ray for


def users_hook(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Stands for a job's own."""
    return {**runtime_env, "working_dir": "gcs://theirs"}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (distant.HOOK, distant.USERS_HOOK):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PERFDOCTOR_RUN", "/runs/1")
    monkeypatch.setenv("PERFDOCTOR_CPUS", "2")
    monkeypatch.setattr(distant, "starts_cluster", lambda: False)
    monkeypatch.setattr(gathering, "Gathering", lambda run, token, connected: connected())
    return monkeypatch


def test_workers_are_given_the_probe_beside_what_the_job_asks_for(driver: pytest.MonkeyPatch) -> None:
    asked = {"env_vars": {"PYTHONPATH": "/theirs", "A": "1"}, "py_modules": ["/theirs"], "pip": ["x"]}
    given = ray_driver.hook(asked)
    sitecustomize, package, theirs = given["py_modules"]
    assert Path(sitecustomize).name == "sitecustomize.py"
    assert (Path(package) / "__init__.py").exists()
    assert theirs == "/theirs"
    assert given["pip"] == ["x"]
    variables = given["env_vars"]
    assert {"PYTHONPATH": "/theirs", "A": "1", "PERFDOCTOR_RUN": "/runs/1"}.items() <= variables.items()
    assert "PERFDOCTOR_CPUS" not in variables  # of another machine
    assert asked == {"env_vars": {"PYTHONPATH": "/theirs", "A": "1"}, "py_modules": ["/theirs"], "pip": ["x"]}


def test_a_jobs_own_hook_goes_first(driver: pytest.MonkeyPatch) -> None:
    driver.setenv(distant.HOOK, f"{__name__}.users_hook")
    distant.announce()
    assert os.environ[distant.HOOK] == distant.OURS
    distant.announce()  # as a child of it does
    given = ray_driver.hook({})
    assert given["working_dir"] == "gcs://theirs"
    assert given["py_modules"]


def test_a_cluster_of_the_drivers_own_needs_nothing(driver: pytest.MonkeyPatch) -> None:
    driver.setattr(distant, "starts_cluster", lambda: True)
    assert ray_driver.hook(None) is None


def test_where_we_fail_the_job_gets_what_it_asked_for(driver: pytest.MonkeyPatch) -> None:
    def fail() -> bool:
        raise OSError

    driver.setattr(distant, "starts_cluster", fail)
    assert ray_driver.hook({"pip": ["x"]}) == {"pip": ["x"]}


class Kept:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []

    def record(self, kind: str, **fields: Any) -> None:
        self.records.append((kind, fields))

    def flush(self) -> None:
        pass


def test_ray_is_told_of_us_once_it_is_imported(driver: pytest.MonkeyPatch) -> None:
    driver.setattr(distant.IMPORTS, "awaited", {})
    distant.await_ray(Kept())
    assert distant.HOOK not in os.environ
    distant.IMPORTS.awaited["ray"](None)
    assert os.environ[distant.HOOK] == distant.OURS


@pytest.mark.parametrize(
    ("module", "how"),
    [
        ("ray.util.client.worker", "client"),
        ("ray.dashboard.modules.job.sdk", "submitted"),
        ("ray._private.runtime_env.uv_runtime_env_hook", "uv"),
    ],
)
def test_where_ray_will_not_ask_is_recorded(driver: pytest.MonkeyPatch, module: str, how: str) -> None:
    driver.setattr(distant.IMPORTS, "awaited", {})
    driver.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", raising=False)
    kept = Kept()
    distant.await_ray(kept)
    distant.IMPORTS.awaited[module](SimpleNamespace(_get_uv_run_cmdline=lambda: ["uv", "run"]))
    assert kept.records == [("ray", {"unseen": how})]


def test_without_uv_ray_asks(driver: pytest.MonkeyPatch) -> None:
    driver.setattr(distant.IMPORTS, "awaited", {})
    driver.delenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", raising=False)
    kept = Kept()
    distant.await_ray(kept)
    hook = distant.IMPORTS.awaited["ray._private.runtime_env.uv_runtime_env_hook"]
    hook(SimpleNamespace(_get_uv_run_cmdline=lambda: None))
    assert kept.records == []
