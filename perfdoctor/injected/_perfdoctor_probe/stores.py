"""The store in which the job's process group met, as its ranks may use it for something else.

Loaded only in a job whose ranks one launcher does not all hear from.
"""

import datetime
import os
import select
import socket
import stat
import time

import torch

_CONNECT_S = 2.0
_TIMEOUT = datetime.timedelta(seconds=10)
_SHARE = 400
"""A look takes some four reads, and a hundredth of a rank's time at most: on a network disk a read takes milliseconds.
"""


def own() -> "OverTcp | InFile":
    """That of this job. Raises RuntimeError where its ranks have none in common that can be used."""
    store = _innermost()
    if isinstance(store, torch.distributed.TCPStore):
        return OverTcp(store)
    if isinstance(store, torch.distributed.FileStore):
        return InFile(store)
    raise RuntimeError("its ranks met in no store over TCP, and in no file")


class OverTcp:
    """By a connection of our own: the job's may be in a read that waits for others."""

    least_period_ns = 0

    def __init__(self, jobs) -> None:
        self.is_agents = _is_agents(jobs)
        known = _sockets()
        self.store = _connected(jobs, _attempt() if self.is_agents else "")
        fresh = _sockets() - known
        self.descriptor = fresh.pop() if len(fresh) == 1 else -1
        """The connection's descriptor; -1 where it is not known."""

    def reach(self):
        """The store; RuntimeError, and not a word of torch's on the job's stderr, where its server is gone."""
        if self.descriptor >= 0 and select.select([self.descriptor], [], [], 0)[0]:
            raise RuntimeError("the job's store is gone")
        return self.store

    def count(self, name: str) -> int:
        """A counter, in one round trip."""
        return self.reach().add(name, 0)

    @property
    def goes_with_rank_0(self) -> bool:
        return not self.is_agents

    def close(self) -> None:
        self.store = None


class InFile:
    """The job's own object, and only while it is in use: a second one would be counted, and the file stay behind."""

    goes_with_rank_0 = False

    def __init__(self, jobs) -> None:
        self.path = jobs.path
        took_ns = []
        for _ in range(3):
            began = time.perf_counter_ns()
            self.reach().check(["orders"])
            took_ns.append(time.perf_counter_ns() - began)
        self.least_period_ns = _SHARE * min(took_ns)

    def reach(self):
        """The store; RuntimeError where its file is gone, of which torch would wait for another."""
        if torch.distributed.is_initialized() and os.path.exists(self.path):
            store = _innermost()
            if getattr(store, "path", None) == self.path:
                return _ours(store)
        raise RuntimeError("the job's store is gone")

    def count(self, name: str) -> int:
        """A counter. Adding nothing to it would be written down too, at every look."""
        store = self.reach()
        return int(store.get(name)) if store.check([name]) else 0

    def close(self) -> None:
        pass


def _innermost():
    """What all prefixes are put in front of; None for a group without a store, as MPI's is."""
    store = torch.distributed.distributed_c10d._get_default_store()
    while isinstance(store, torch.distributed.PrefixStore):
        store = store.underlying_store
    return store


def _ours(store, attempt: str = ""):
    return torch.distributed.PrefixStore(f"perfdoctor/{attempt}", store)


def _is_agents(jobs) -> bool:
    """Whether torchrun's agent keeps this store over TCP, which then outlives the ranks; else rank 0 does."""
    told = os.environ.get("TORCHELASTIC_USE_AGENT_STORE"), os.environ.get("MASTER_PORT")
    return told == ("True", str(jobs.port))


def _attempt() -> str:
    """Which start of the job meets in an agent's store, where the one before has left its orders. Each agent counts the
    failures of its own ranks only, so where rank 0 keeps the store, new with each start, ranks that count differently
    do meet and this is no name for what they have in common."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


def _connected(jobs, attempt: str):
    # Torch tells at length of a server that does not answer.
    try:
        socket.create_connection((jobs.host, jobs.port), timeout=_CONNECT_S).close()
    except OSError as error:
        raise RuntimeError("the server of the store that its ranks met in cannot be reached") from error
    kind = torch.distributed.TCPStore
    return _ours(kind(jobs.host, jobs.port, is_master=False, wait_for_workers=False, timeout=_TIMEOUT), attempt)


def _sockets() -> "set[int]":
    """Descriptors of this process's sockets."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.add(int(name))
        except OSError:
            pass
    return found
