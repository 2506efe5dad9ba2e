"""The leaving of a job whose ranks one launcher does not all hear from: several nodes, each with a perfdoctor of its
own, or ranks that nobody hears from.

The ranks agree on the step themselves (the probe's `meeting`). The launcher that hears from rank 0 says when: its own
evidence suffices. The others only see that their ranks leave.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..launch.control import ControlServer, Rank
from ..launch.job import Ending

_GATHERING_S = 1.0
"""After the last rank that connected: of one machine, all reach their first step together."""
GRACE_S = 30.0
"""For a job to end after its ranks have left: of several nodes, launchers wait for one another."""


class Together:
    """One launcher's side."""

    def __init__(self, server: ControlServer) -> None:
        self.server = server
        self.asked = False
        """Whether enough was seen here."""
        self.cannot = ""
        """Why the ranks cannot leave together."""
        self._asked: Rank | None = None
        """Who was told."""
        self._heard: list[Rank] = []
        self._since = 0.0
        self._leaving = 0.0

    def look(self) -> None:
        """Note who has come and who leaves; called often."""
        now, server = time.monotonic(), self.server
        if server.ranks != self._heard:
            if self._asked not in server.ranks and any(rank not in self._heard for rank in server.ranks):
                self.asked, self.cannot = False, ""  # the ranks were started anew: nobody has told them
            self._heard, self._since = list(server.ranks), now
        if now - self._since >= _GATHERING_S and not server.hears_all:
            for rank in server.ranks:
                if not rank.meets:
                    rank.meets = True
                    server.send(rank, {"do": "meet"})
        self.cannot = next((rank.cannot for rank in server.ranks if rank.cannot), self.cannot)
        if server.agreed is not None and not self._leaving:
            self._leaving = now

    def ask(self, why: str) -> None:
        """All ranks are to leave: told to rank 0, or where that one is elsewhere to any that sees whether somebody
        observes it. `why`: what they pass on; "" when enough was seen."""
        self.asked = True
        speaker = self.server.lead or next(iter(self.server.ranks), None)
        self._asked = speaker
        if speaker is not None:
            self.server.send(speaker, {"do": "leave", "why": why})

    @property
    def phase(self) -> str:
        """In words; "" before enough was seen."""
        if self.server.agreed is not None:
            return "stopping the job"
        if self.cannot:
            return f"enough was seen, but the job runs on to its end: {self.cannot}"
        if not self.asked:
            return ""
        if self.server.lead is None:
            return "enough was seen here; all ranks leave when the perfdoctor that observes rank 0 says so"
        return "stopping the job: its ranks agree on a step"

    @property
    def overdue(self) -> bool:
        """Whether the ranks have left long ago and the job is still there."""
        return self._leaving > 0 and time.monotonic() - self._leaving > GRACE_S

    def ending(self, ending: Ending) -> Ending:
        """Of a job that was there no more, or had left together, or could not."""
        if self.server.agreed is not None:
            return Ending("stopped", detail=self.server.agreed)
        if self.cannot and ending.kind == "finished":
            return replace(ending, detail=f"it was not ended early: {self.cannot}")
        return ending
