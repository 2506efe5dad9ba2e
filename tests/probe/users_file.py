"""A stand-in for `Sites` that takes one file's lines for the user's."""

from __future__ import annotations

from types import FrameType


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

    def is_library(self, filename: str) -> bool:
        return filename != self.file
