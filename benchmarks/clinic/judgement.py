"""What a doctor said of one program, whoever the doctor is."""

from __future__ import annotations

from dataclasses import dataclass

ALARMS = ("warning", "error")


@dataclass(frozen=True)
class Claim:
    """One cause that it names."""

    id: str
    """A finding's id (`PD03.too-few-workers`), or the code of the check that a peer's words amount to (`PD03`)."""
    severity: str = "warning"
    file: str = ""
    line: int = 0
    speed_up: tuple[float, float, float] | None = None
    """Predicted rate over today's: low, middle, high; None from those who do not predict."""
    ceiling: float | None = None
    """Rate over today's if all the time that it blames were gone: Amdahl's law."""
    before_widening: tuple[float, float] | None = None
    """The range that the check gave, where it was widened by how far earlier ones missed."""
    remedies: tuple[str, ...] = ()
    """Of perfdoctor's own that would try the fix."""

    @property
    def alarm(self) -> bool:
        """Whether it would stop a user: not a note, and not about the measurement itself (PD9x)."""
        return self.severity in ALARMS and not self.id.startswith("PD9")


@dataclass(frozen=True)
class Judgement:
    """Claims, the most important first."""

    claims: tuple[Claim, ...] = ()
    unexplained: bool = False
    """It says that most of the time goes to something none of its checks names."""
    failure: str = ""
    """Why there is no judgement."""
    skipped: str = ""
    """Why none was asked for: the program cannot be run here, or not by this doctor. Not counted."""
    seconds: float = 0.0

    def alarms(self, allow: tuple[str, ...] = ()) -> list[Claim]:
        """Without those that are true of the program anyway."""
        return [claim for claim in self.claims if claim.alarm and not matches(claim.id, allow)]


def matches(finding: str, wanted: tuple[str, ...]) -> bool:
    """Whether a finding is one of those wanted, or belongs to a check that is."""
    return any(finding == one or finding.startswith(one + ".") for one in wanted)
