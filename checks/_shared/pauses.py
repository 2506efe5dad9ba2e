"""The pause of a thread beside the loop that everybody waits for."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Missing, Pause

_LEAST_LOOKS = 40
"""At all threads: fewer do not tell a share."""
_OTHERWISE = 0.5
"""Share of the looks at a loop that computes, up to which a thread that pauses then too may be awaited: one that looks
after something every second pauses always, whatever the loop waits for."""
_RUNS_OUT = 0.5
"""Of the waits with a limit, that end because their time is over: a limit for emergencies is never reached."""
_LEAST_WAITS = 5


def awaited_pause(evidence: Evidence) -> Pause | None:
    """The one that is awaited most."""
    seen = evidence.lock_waits
    if isinstance(seen, Missing) or seen.looks < _LEAST_LOOKS:
        return None
    return next((pause for pause in seen.pauses if _is_awaited(pause)), None)


def _is_awaited(pause: Pause) -> bool:
    runs_out = not pause.waits or (pause.waits >= _LEAST_WAITS and pause.ran_out >= _RUNS_OUT * pause.waits)
    return runs_out and pause.otherwise <= _OTHERWISE
