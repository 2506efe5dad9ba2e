"""Which container image this runs in, as far as a process inside can know."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

NONE = "none"
UNKNOWN = "a container that does not say its image"
_MARKS = ("run/.containerenv", ".dockerenv")


def container_image(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> str:
    """Podman writes the image's id into the container, GitLab its name into a variable; Docker tells nobody inside.

    `none` outside of a container.
    """
    try:
        text = (root / "run/.containerenv").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r'^imageid="(\w+)"', text, re.MULTILINE)
    if found:
        return found[1][:12]
    if environment.get("CI_JOB_IMAGE"):
        return environment["CI_JOB_IMAGE"]
    inside = any((root / mark).exists() for mark in _MARKS) or "KUBERNETES_SERVICE_HOST" in environment
    return UNKNOWN if inside else NONE
