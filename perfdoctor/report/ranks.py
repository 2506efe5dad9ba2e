"""The ranks of a job beside each other, in a few words however many they are."""

from __future__ import annotations

from ..evidence.model import Communication, Missing, RankTimes, ranks_in_words
from . import wording

LEAST = 4
"""Ranks from which on they are told by their distribution; of fewer the verdict and the findings say all."""
NAMED = 8
"""Numbers of ranks that are listed."""


def ranks_sentence(together: Communication | Missing) -> str:
    """How their own work is distributed, which have most of it, and who is not in that; "" of few ranks."""
    if isinstance(together, Missing) or len(together.ranks) < LEAST:
        return ""
    longest = wording.listing([_named(times) for times in together.longest])
    sentences = [
        f"Own work of {len(together.ranks):,} ranks per step: median {_own(together, 0.5)}, 99 % of them at most "
        f"{_own(together, 0.99)}, 1 % at most {_own(together, 0.01)}; most on {longest}."
    ]
    if together.left_out:
        few = ranks_in_words(together.left_out)
        sentences.append(f"Not compared: {few}, of which fewer than half of the steady steps were recorded.")
    if together.judged:
        sentences.append(f"Of the others only this was looked at: the checks judged {ranks_in_words(together.judged)}.")
    return " ".join(sentences)


def _named(times: RankTimes) -> str:
    return f"rank {times.rank} ({wording.duration(times.own_ms)})"


def _own(together: Communication, share: float) -> str:
    return wording.duration(together.own_ms(share))
