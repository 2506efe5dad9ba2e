"""Ranks that report by TCP, because they do not see the run directory."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.injected._perfdoctor_probe import channel, control
from perfdoctor.launch.control import ControlServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    server = ControlServer(tmp_path)
    yield server
    server.close()


def _asked(server: ControlServer, **message: Any) -> dict[str, Any]:
    """What the driver of an engine is answered."""
    driver = control.Control(str(server.path.parent), {"k": "driver", **message})
    for _ in range(3):
        server.poll(1)
    answer = driver.wait(5)
    assert answer is not None
    driver.close()
    server.poll(1)
    assert server.ranks == [], "a driver is no rank"
    return answer


@pytest.fixture
def way_home(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> str:
    answer = _asked(server, host="127.0.0.1", bound="127.0.0.1")
    monkeypatch.setenv(channel.VARIABLE, answer["channel"])
    return answer["channel"]


def _call(way_home: str, *lines: bytes, token: str = "") -> socket.socket:
    """A connection that says what it likes."""
    right, _, address = way_home.partition("@")
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), 5)
    connection.sendall(b"".join(lines).replace(b"RIGHT", (token or right).encode()))
    return connection


def _polled(server: ControlServer, until: Callable[[], object]) -> None:
    """What is under way has come, a minute later at most."""
    for _ in range(600):
        if until():
            return
        server.poll(0.1)
    raise AssertionError("it never came")


def _is_hung_up_on(server: ControlServer, connection: socket.socket) -> None:
    connection.setblocking(False)

    def over() -> bool:
        try:
            return connection.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    _polled(server, over)


def test_nothing_listens_where_workers_are_on_this_machine(server: ControlServer) -> None:
    answer = _asked(server)
    assert answer["channel"] == ""
    assert Path(answer["payload"]).is_file()


def test_a_rank_speaks_and_listens(server: ControlServer, way_home: str) -> None:
    rank = channel.Remote("", {"k": "hello", "pid": 7, "rank": 3})
    rank.send({"k": "beat", "step": 4, "steps": 4, "wall_us": 40_000})
    _polled(server, lambda: server.ranks and server.ranks[0].step)
    (heard,) = server.ranks
    assert (heard.pid, heard.rank, heard.step, heard.peer) == (7, 3, 4, 0)
    server.send(heard, {"do": "stop", "step": 9})
    server.send(heard, {"do": "window", "name": "ops"})
    assert rank.wait() == {"do": "stop", "step": 9}
    assert rank.commands() == [{"do": "window", "name": "ops"}]
    assert rank.commands() == []
    rank.close()
    _polled(server, lambda: server.ranks == [])
    assert not server.receiving


def test_a_process_writes_its_file(server: ControlServer, way_home: str, tmp_path: Path) -> None:
    sender = channel.Sender()
    text = json.dumps({"k": "process", "pid": 7}).encode() + b"\n"
    assert sender.write("/elsewhere/process-7-100.jsonl", text) == len(text)
    sender.write("/elsewhere/process-7-100.jsonl", b'{"k":"st')
    first, second = (tmp_path / f"process-{name}.jsonl" for name in ("7-100", "8-200"))
    _polled(server, lambda: first.exists() and first.read_bytes().endswith(b'{"k":"st'))
    assert server.receiving
    assert first.read_bytes() == text + b'{"k":"st'
    assert first.stat().st_mode & 0o777 == 0o600
    sender.write("/elsewhere/process-8-200.jsonl", text)  # a forked child
    _polled(server, lambda: second.exists() and second.read_bytes().endswith(b"\n"))
    assert second.read_bytes() == text


def test_without_the_launcher_nothing_is_waited_for(server: ControlServer, way_home: str) -> None:
    sender = channel.Sender()
    server.close()
    with pytest.raises(ConnectionRefusedError):
        sender.write("/elsewhere/process-7-100.jsonl", b"{}\n")
    with pytest.raises(ConnectionError):  # and it is not tried again
        sender.write("/elsewhere/process-7-100.jsonl", b"{}\n")


@pytest.mark.parametrize(
    "said",
    [
        b'{"k":"remote","token":"RIGHT"}\n',
        b'{"k":"remote"}\n',
        b'["RIGHT"]\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x04K\x01.\n",
        b"x" * 70_000,
    ],
)
def test_who_has_not_the_token_is_hung_up_on(server: ControlServer, way_home: str, said: bytes) -> None:
    connection = _call(way_home, said, token="0" * 32)
    _is_hung_up_on(server, connection)
    assert server.ranks == [] and not server.receiving


@pytest.mark.parametrize("name", ["run.json", "../process-1-1.jsonl", "process-1-1.jsonl/x", "process-1-1.jsonl\n"])
def test_no_other_file_is_written(server: ControlServer, way_home: str, name: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    line = json.dumps({"file": name, "token": "RIGHT"}).encode() + b"\n"
    connection = _call(way_home, line, b"{}\n")
    _is_hung_up_on(server, connection)
    assert not server.receiving
    assert sorted(tmp_path.rglob("*")) == before


def test_an_address_that_cannot_be_listened_on_leaves_the_rest(server: ControlServer) -> None:
    answer = _asked(server, host="198.51.100.1", bound="198.51.100.1")  # of a documentation, nobody's
    assert answer["channel"] == ""
    assert Path(answer["payload"]).is_file()
