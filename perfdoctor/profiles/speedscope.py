"""A file for https://www.speedscope.app: one profile for each thread, whose outermost frames are the parts of the step.

The form is that of https://www.speedscope.app/file-format-schema.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..version import VERSION
from .model import Profile, Stack
from .tree import label

_Json = None | bool | int | float | str | list["_Json"] | dict[str, "_Json"]


def render(profiles: Sequence[Profile], name: str) -> str:
    """JSON; `name` is the job's."""
    frames = _Frames()
    found: list[_Json] = [_sampled(profile, frames) for profile in profiles]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": f"perfdoctor {VERSION}",
            "name": name,
            "activeProfileIndex": 0,
            "shared": {"frames": frames.all},
            "profiles": found,
        }
    )


class _Frames:
    """Every frame once, by its number."""

    def __init__(self) -> None:
        self.all: list[_Json] = []
        self.numbers: dict[tuple[str, str, int], int] = {}

    def number(self, name: str, file: str = "", line: int = 0) -> int:
        key = (name, file, line)
        if key not in self.numbers:
            self.numbers[key] = len(self.all)
            self.all.append({"name": name, **({"file": file, "line": line} if file else {})})
        return self.numbers[key]


def _sampled(profile: Profile, frames: _Frames) -> dict[str, _Json]:
    stacks: Sequence[Stack] = profile.stacks
    return {
        "type": "sampled",
        "name": f"{profile.name}, per {profile.unit}",
        "unit": "milliseconds",
        "startValue": 0,
        "endValue": sum(stack.ms for stack in stacks),
        "samples": [
            [
                frames.number(stack.part),
                *(frames.number(label(frame), frame.site.file, frame.site.line) for frame in stack.frames),
            ]
            for stack in stacks
        ],
        "weights": [stack.ms for stack in stacks],
    }
