"""The memory of a step as JSON, for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from ..evidence.model import Job
from ..profiles.memory import MemoryProfile
from ..profiles.objects import ObjectsProfile
from ..version import VERSION

SCHEMA = "perfdoctor.memory/1"
"""1: pieces, lines and layers of each device; objects by type and line."""


def render(profiles: Sequence[MemoryProfile], held: Sequence[ObjectsProfile], job: Job) -> str:
    """Bytes of every rank and device, and what Python holds in each rank."""
    page = {"schema": SCHEMA, "version": VERSION, "command": list(job.command), **plain(profiles, held)}
    return json.dumps(page, indent=1) + "\n"


def plain(profiles: Sequence[MemoryProfile], held: Sequence[ObjectsProfile]) -> dict[str, object]:
    """The same as values, for a page that shows them among others."""
    return {"memory": [asdict(profile) for profile in profiles], "objects": [asdict(objects) for objects in held]}
