"""What goes home and what comes back: batches in the key-value store of the cluster, where all its processes reach it.

A batch is a line of JSON, which says of which files its bytes are and what messages come with them, and those bytes.
"""

import json
import sys
import time

_NAMESPACE = b"perfdoctor"
_TIMEOUT_S = 5.0
"""For one call: a store that does not answer must not hold up a job's end."""
_LARGEST = 4 << 20
"""Bytes of files in a batch. Putting 1 MB takes 10 to 75 ms."""
POLL_S = 0.2
"""Between two looks, at either end."""
LAG_S = 1.0
"""Within which a message has come from one end to the other: two looks, and room for a busy machine."""
SILENCE_S = 10.0
"""Of a process that says nothing for so long, nothing more is expected."""
ALIVE_S = 2.0
"""A rank that has nothing to say says so."""


class Store:
    """The keys of one run."""

    def __init__(self, client, token: str) -> None:
        self.client = client
        self.token = token

    def _key(self, name: str) -> bytes:
        return f"{self.token}/{name}".encode()

    def put(self, name: str, data: bytes) -> None:
        self.client.internal_kv_put(self._key(name), data, True, _NAMESPACE, _TIMEOUT_S)

    def get(self, name: str) -> "bytes | None":
        return self.client.internal_kv_get(self._key(name), _NAMESPACE, _TIMEOUT_S)

    def names(self, under: str) -> "list[str]":
        """In order."""
        start = len(self.token) + 1
        return sorted(
            key.decode()[start:] for key in self.client.internal_kv_keys(self._key(under), _NAMESPACE, _TIMEOUT_S)
        )

    def remove(self, name: str, all_under: bool = False) -> None:
        self.client.internal_kv_del(self._key(name), all_under, _NAMESPACE, _TIMEOUT_S)


def opened(token: str, patience_s: float) -> "Store | None":
    """The store of the cluster that this process is connected to, by a client of our own: the job may disconnect.
    None when it has not connected in time."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        worker = sys.modules["ray._private.worker"].global_worker
        if worker.connected:
            client = sys.modules["ray._raylet"].GcsClient
            return Store(client(address=worker.gcs_client.address), token)
        time.sleep(POLL_S)
    return None


def packed(pieces: "list[tuple[str, int, bytes]]", messages: "list[dict]") -> bytes:
    """`pieces` of files: name, where in it, bytes."""
    head = {"files": [(name, at, len(data)) for name, at, data in pieces], "messages": messages}
    return json.dumps(head).encode() + b"\n" + b"".join(data for _, _, data in pieces)


def unpacked(batch: bytes) -> "tuple[list[tuple[str, int, bytes]], list[dict]]":
    """The reverse. Raises ValueError, KeyError or TypeError for what is no batch."""
    line, _, data = batch.partition(b"\n")
    head = json.loads(line)
    pieces, start = [], 0
    for name, at, length in head["files"]:
        pieces.append((str(name), int(at), data[start : start + int(length)]))
        start += int(length)
    return pieces, list(head["messages"])


def divided(pieces: "list[tuple[str, int, bytes]]") -> "list[list[tuple[str, int, bytes]]]":
    """The same in portions that fit into a batch; one, empty, where there is nothing."""
    portions: "list" = [[]]
    room = _LARGEST
    for name, at, data in pieces:
        while data:
            if not room:
                portions.append([])
                room = _LARGEST
            part, data = data[:room], data[room:]
            portions[-1].append((name, at, part))
            at, room = at + len(part), room - len(part)
    return portions
