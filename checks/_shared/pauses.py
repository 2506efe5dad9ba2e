"""What looks at all threads say of a loop that waits: for a thread that pauses, or for threads that compute."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, LockWaits, Missing, Pause

_LEAST_LOOKS = 40
"""At all threads: fewer do not tell a share."""
_OTHERWISE = 0.5
"""Share of the looks at a loop that computes, up to which a thread that pauses then too may be awaited: one that looks
after something every second pauses always, whatever the loop waits for."""
_IDLE = 0.5
"""Of the looks at a loop that waits: where other threads wait in fewer, it waits for what they compute."""
_LEAST_WAITS = 5
"""Whose time ran out."""


def looked_at(evidence: Evidence) -> LockWaits | None:
    """What the looks have shown; None after too few."""
    seen = evidence.lock_waits
    return None if isinstance(seen, Missing) or seen.looks < _LEAST_LOOKS else seen


def awaited_pause(evidence: Evidence) -> Pause | None:
    """The one that is awaited most."""
    seen = looked_at(evidence)
    return None if seen is None else next((pause for pause in seen.pauses if _is_awaited(pause)), None)


def is_worked_for(evidence: Evidence) -> bool:
    """Whether other threads compute most of the time in which the loop waits."""
    seen = looked_at(evidence)
    return seen is not None and seen.all_wait is not None and seen.all_wait < _IDLE * seen.loop_waits


def _is_awaited(pause: Pause) -> bool:
    return (not pause.ran_out or pause.ran_out >= _LEAST_WAITS) and pause.otherwise <= _OTHERWISE
