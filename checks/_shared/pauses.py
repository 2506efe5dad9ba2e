"""What looks at all threads say of a loop that waits: for a thread that pauses, or for threads that compute."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Missing, Pause

_LEAST_LOOKS = 40
"""At all threads: fewer do not tell a share."""
_OTHERWISE = 0.5
"""Share of the looks at a loop that computes, up to which a thread that pauses then too may be awaited: one that looks
after something every second pauses always, whatever the loop waits for."""
_IDLE = 0.5
"""Of the looks at a loop that waits: where other threads wait in fewer, it waits for what they compute."""
_LEAST_WAITS = 5
"""Whose time ran out."""


def awaited_pause(evidence: Evidence) -> Pause | None:
    """The one that is awaited most."""
    seen = evidence.lock_waits
    if isinstance(seen, Missing) or seen.looks < _LEAST_LOOKS:
        return None
    return next((pause for pause in seen.pauses if _is_awaited(pause)), None)


def is_worked_for(evidence: Evidence) -> bool:
    """Whether other threads compute most of the time in which the loop waits."""
    seen = evidence.lock_waits
    if isinstance(seen, Missing) or seen.looks < _LEAST_LOOKS or seen.all_wait is None:
        return False
    return seen.all_wait < _IDLE * seen.loop_waits


def _is_awaited(pause: Pause) -> bool:
    return (not pause.ran_out or pause.ran_out >= _LEAST_WAITS) and pause.otherwise <= _OTHERWISE
