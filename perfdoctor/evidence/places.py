"""Places in the user's code, with paths as the user would type them."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass

from ..recording.model import CodeSite
from .model import Missing, Site


@dataclass(frozen=True, slots=True)
class Places:
    """Turns the numbers in a recording into places."""

    sites: Mapping[int, CodeSite]
    cwd: str

    def find(self, number: int) -> Site | None:
        """The place, or None when the stack showed none."""
        site = self.sites.get(number)
        if site is None:
            return None
        file, _, function = site.via.rpartition(":")
        via = f"{_shortened(file)}:{function}" if file else ""
        return Site(self._relative(site.file), site.line, site.function, via)

    def site(self, number: int) -> Site | Missing:
        """The place, or that there is none."""
        return self.find(number) or Missing("no line of the job was on the stack")

    def _relative(self, file: str) -> str:
        if self.cwd and file.startswith(self.cwd.rstrip("/") + "/"):
            return os.path.relpath(file, self.cwd)
        return file


def _shortened(file: str) -> str:
    """A library's file from its package name on."""
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in file:
            return file.rpartition(marker)[2]
    return file
