"""File systems that take no more, registered with fsspec as `stubborn://`: a backend's failures without a backend."""

from __future__ import annotations

import errno
from typing import Any

from fsspec.implementations.local import LocalFileSystem


class StubbornFileSystem(LocalFileSystem):
    """A local one that takes `room` writes, whose last ones are its own word for being full."""

    protocol = "stubborn"
    cachable = False
    room: int | None = None
    """For all instances; None for as many as come."""
    words = "SignatureDoesNotMatch: token=hunter22 of s3cr3t"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("stubborn://").partition("?")[0].rpartition("@")[2])

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if StubbornFileSystem.room is not None:
            if StubbornFileSystem.room <= 0:
                raise OSError(errno.ENOSPC, self.words)
            StubbornFileSystem.room -= 1
        super().pipe_file(path, value, mode=mode, **kwargs)
