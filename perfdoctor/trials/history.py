"""How past predictions on this machine compared with their trials: a line per trial, in the user's state directory."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from ..diagnosis.measured import Trial

LATEST = 50
"""Trials that the typical error is the median of: predictions get better, and machines change."""
LEAST = 5
"""Fewer say nothing typical."""


def history_file(environment: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/perfdoctor/predictions.jsonl`; see the XDG base directory specification."""
    state = environment.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path(environment.get("HOME") or "~").expanduser() / ".local/state"
    return base / "perfdoctor" / "predictions.jsonl"


def typical_error(lines: Iterable[str]) -> tuple[float | None, int]:
    """The median of |predicted / measured - 1|, from logarithms so that both directions count alike; and of how many.

    None for fewer than `LEAST`. Lines that are no records are passed over.
    """
    errors: list[float] = []
    for line in lines:
        try:
            record = json.loads(line)
            low, high, measured = (float(record[name]) for name in ("low", "high", "measured"))
            errors.append(abs(math.log(measured / math.sqrt(low * high))))
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            continue
    latest = errors[-LATEST:]
    return (math.expm1(median(latest)), len(latest)) if len(latest) >= LEAST else (None, len(latest))


def read(path: Path) -> tuple[float | None, int]:
    """`typical_error` of a file; nothing where there is none that can be read."""
    try:
        return typical_error(path.read_text().splitlines())
    except (OSError, UnicodeDecodeError):
        return None, 0


def facts(environment: Mapping[str, str]) -> dict[str, float | None]:
    """How good predictions were before on this machine, for run.json."""
    past_error, past_trials = read(history_file(environment))
    return {"past_error": past_error, "past_trials": past_trials}


def records(trials: Sequence[Trial], now: datetime) -> list[str]:
    """A line for each fix that was both predicted and measured. Nothing in it tells what was trained."""
    return [
        json.dumps(
            {
                "t": now.astimezone(timezone.utc).isoformat(timespec="seconds"),
                "remedy": trial.remedy,
                "low": round(trial.predicted.low, 4),
                "high": round(trial.predicted.high, 4),
                "measured": round(trial.gain.factor, 4),
                "measured_low": round(trial.gain.low, 4),
                "measured_high": round(trial.gain.high, 4),
            }
        )
        for trial in trials
        # A bound has no lines to keep: it is not what was predicted.
        if trial.gain is not None and trial.predicted is not None and trial.keep
    ]


def append(path: Path, lines: Sequence[str]) -> None:
    """Add to the file. A directory that cannot be written is no reason to fail: the trial counts without it."""
    if not lines:
        return
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write("".join(f"{line}\n" for line in lines))
