"""A profile as JSON, for programs: every line, and the stacks as a tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from ..evidence.model import Job
from ..profiles import tree
from ..profiles.model import Profile
from ..version import VERSION
from .source import source_line

SCHEMA = "perfdoctor.profile/1"
"""1: lines and trees of each thread."""


def render(profiles: Sequence[Profile], job: Job) -> str:
    """Times are milliseconds per step, of workers per batch."""
    return (
        json.dumps(
            {
                "schema": SCHEMA,
                "version": VERSION,
                "command": list(job.command),
                "profiles": [_plain(profile, job) for profile in profiles],
            },
            indent=1,
        )
        + "\n"
    )


def _plain(profile: Profile, job: Job) -> dict[str, object]:
    return {
        "name": profile.name,
        "unit": profile.unit,
        "total_ms": profile.total_ms,
        "count": profile.count,
        "samples": profile.samples,
        "lines": [{**asdict(line), "code": source_line(line.site, job)} for line in profile.lines],
        "tree": tree.flame(profile),
    }
