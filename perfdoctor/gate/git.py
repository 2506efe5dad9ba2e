"""Asking git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ..errors import PerfdoctorError


def git(*words: str, cwd: Path | None = None) -> str:
    """Standard output of a git command. Raises PerfdoctorError with git's own last line."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise PerfdoctorError(
            "git is not installed",
            slug="no-git",
            advice="install git, or gate against a stored baseline: --baseline FILE",
        ) from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise PerfdoctorError(f"git {words[0]}: {last}", slug="git-failed", advice="see what git says")
    return done.stdout.strip("\n")
