"""Which ranks ran on one machine, as launchers and the kernel name it."""

from __future__ import annotations

from collections.abc import Sequence

from ..recording.model import ProcessRecording

_NUMBERS = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
"""A node's number by torchrun, by others, and by Slurm: the first that is set counts, which is the innermost's."""


def nodes(processes: Sequence[ProcessRecording]) -> list[str]:
    """A name of its machine for each process; "" for all where they ran on one.

    Two nodes of a launcher may lie on one host, and hosts made of one image share a name: then the number, or the start
    of the kernel's boot id, tells them apart.
    """
    keys = [(one.header.host, one.header.boot, _number(one)) for one in processes]
    if len(set(keys)) < 2:
        return [""] * len(keys)
    return [_name(key, keys) for key in keys]


def _number(process: ProcessRecording) -> str:
    environment = process.settings.environment if process.settings is not None else {}
    return next((environment[name] for name in _NUMBERS if name in environment), "")


def _name(key: tuple[str, str, str], keys: Sequence[tuple[str, str, str]]) -> str:
    host, boot, number = key
    if len({other for other in keys if other[0] == host}) == 1 and host:
        return host
    if len({other[2] for other in keys if other[0] == host}) == 1 or not number:
        return f"{host} ({boot[:8]})"
    return f"{host} ({number})" if host else number
