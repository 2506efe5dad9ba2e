"""Configurations as tests write them."""

from __future__ import annotations

from pathlib import Path

from perfdoctor.config.files import FILE, load
from perfdoctor.config.settings import Config


def written(directory: Path, text: str, name: str = FILE) -> Config:
    """What is read of `text`, in a directory below which nobody else's configuration decides."""
    assert load(directory.parent).source is None
    (directory / name).write_text(text)
    return load(directory)
