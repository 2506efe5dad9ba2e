"""Where recordings go while a command runs: the directory of the settings, or one whose content is uploaded."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..config.settings import Config
from ..recording.directory import RunDirectory
from ..storage import copies
from ..storage.remote import opened
from ..storage.uploading import Uploader
from .progress import say

_UPLOADERS: dict[Path, Uploader] = {}
"""By the folder that each uploads."""


@contextmanager
def stored(config: Config, *, growing: bool = True) -> Iterator[Config]:
    """`config` with a local directory for recordings. Where it names storage, what is in there is uploaded: while it
    grows, unless not `growing`, and at the end. Raises PerfdoctorError where the storage takes nothing.

    The local copy goes once all of it is there; else it stays, and the user is told where.
    """
    if not config.storage:
        yield config
        return
    remote = opened(config.storage)
    # Of two nodes, or two jobs, that begin in the same second, each has a name of its own.
    suffix = f"-{secrets.token_hex(4)}"
    folder = copies.open_folder(config.storage, suffix)
    uploader = Uploader(remote, folder, suffix, config.upload_every_s if growing else None)
    try:
        uploader.start()
    except BaseException:
        copies.close_folder(folder)
        raise
    _UPLOADERS[folder] = uploader
    failure = "interrupted"
    try:
        yield replace(config, runs=folder)
    finally:
        try:
            failure = _UPLOADERS.pop(folder).finish()
        finally:
            if failure and any(folder.iterdir()):
                copies.leave_folder(folder)
                for path in sorted(folder.iterdir()):
                    say(f"not all of the recording could be uploaded: {failure}. It is kept: perfdoctor report {path}")
            else:
                copies.close_folder(folder)


def deliver(directory: RunDirectory) -> bool:
    """Upload what is not yet there of a recording that is complete, so that other nodes see how the job ended here.
    Whether all of it is in storage now."""
    uploader = _UPLOADERS.get(directory.path.parent)
    return uploader is not None and not uploader.finish()
