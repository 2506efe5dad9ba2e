"""Stand-ins: `Sites` that take one file's lines for the user's, and a `Loop` that is in no step."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from perfdoctor.injected._perfdoctor_probe import timeline


class UsersFile:
    def __init__(self, file: str) -> None:
        self.file = file

    def stack(self, frame: FrameType | None) -> list[tuple[str, int, str]]:
        """File, line and function of the user's frames, the innermost first."""
        found = []
        while frame is not None:
            if not self.is_library(frame.f_code.co_filename):
                found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return found

    def here(self, depth: int = 1) -> int:
        """The line of the innermost frame of the user's."""
        frame = sys._getframe(depth)
        return next((line for _, line, _ in self.stack(frame)), -1)

    def is_library(self, filename: str) -> bool:
        return filename != self.file

    def at(self, code: CodeType, line: int) -> tuple[str, int]:
        """The function, and the line within it."""
        return code.co_name, line - code.co_firstlineno

    def number(self, place: tuple[str, int, str, None]) -> int:
        """The line."""
        return place[1]


class IdleLoop:
    def __init__(self) -> None:
        self.timeline = timeline.Timeline()
        self.drawing: list[int] | None = None
