"""Where the steady step goes, and the whole job, as data that every renderer draws in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..evidence.model import Divided

SMALLEST_SHARE = 0.005
"""Parts below this share of the step are merged: half a per cent is less than a run's noise."""
SMALLEST_OF_JOB = 0.01
"""The same for the whole job, which has twice as many parts."""

BAR = 30
"""Characters of the longest bar of a table: a third of the width of a page beside its words."""

REST = "rest"


class Look(NamedTuple):
    """What a part of the step, or of the job, is called in a report, and how it is drawn."""

    label: str
    glyph: str
    """One character, so that a bar reads without colour."""
    style: str
    """Of that character on a terminal."""


LOOKS = {
    "input_wait": Look("waiting for data", "█", "red"),
    "forward": Look("forward pass", "▓", "green"),
    "backward": Look("backward pass", "▒", "cyan"),
    "optimizer": Look("optimizer step", "░", "blue"),
    "checkpoint": Look("saving checkpoints", "▚", "magenta"),
    "gc": Look("garbage collection", "╳", "yellow"),
    "other": Look("other code in the loop", "─", "white"),
    "communication": Look("waiting for other ranks", "┅", "bright_blue"),
    "logging": Look("logging and printing", "≡", "bright_blue"),
    REST: Look("rest", "·", "dim"),
}


JOB_LOOKS = {
    "start": Look("interpreter start", "╷", "white"),
    "imports": Look("imports", "╎", "yellow"),
    "set_up": Look("set-up of data and model", "┊", "magenta"),
    "first_step": Look("first step", "▞", "cyan"),
    "warm_up": Look("warm-up", "▒", "cyan"),
    "other_phases": Look("other phases of training", "╱", "cyan"),
    "steady": Look("steady steps", "█", "green"),
    "epoch_starts": Look("epoch starts", "┃", "red"),
    "evaluation": Look("evaluation", "▓", "blue"),
    "inference": Look("forward passes without training", "░", "blue"),
    "checkpoints": LOOKS["checkpoint"],
    "logging": LOOKS["logging"],
    "between": Look("else between steps", "─", "white"),
    "after": Look("after the last step", "╵", "white"),
    "observing": Look("perfdoctor itself", "○", "dim"),
    REST: LOOKS[REST],
}


@dataclass(frozen=True, slots=True)
class Slice:
    """One part of a time."""

    part: str
    """A field of the parts, or `REST`."""
    look: Look
    ms: float
    share: float
    """Of the whole."""


@dataclass(frozen=True, slots=True)
class SliceText:
    """One part of the step, or of the job, in words."""

    piece: Slice
    time: str
    """In the unit and with the decimals of the whole."""
    share: str
    device: str = ""
    """On the CUDA device's timeline, in the same unit; "" without one."""


def dissect(parts: Divided, looks: Mapping[str, Look] = LOOKS, smallest: float = SMALLEST_SHARE) -> tuple[Slice, ...]:
    """The parts in their order, those under the smallest share merged into the rest."""
    total = parts.total
    if total <= 0:
        return ()
    shares = {name: ms / total for name, ms in parts.as_dict().items()}
    slices = [Slice(name, looks[name], value * total, value) for name, value in shares.items() if value >= smallest]
    rest = sum(value for value in shares.values() if 0 < value < smallest)
    if rest > 0:
        slices.append(Slice(REST, looks[REST], rest * total, rest))
    return tuple(slices)


def cells(slices: tuple[Slice, ...], width: int) -> tuple[int, ...]:
    """How many of `width` characters each slice gets: in proportion, at least one, `width` in all.

    Largest remainders first; a slice gets nothing only where there are more slices than characters.
    """
    if not slices or width <= 0:
        return tuple(0 for _ in slices)
    shown = slices[:width]
    spare = width - len(shown)
    total = sum(piece.share for piece in shown)
    exact = [max(0.0, piece.share / total * width - 1) for piece in shown]
    scale = spare / sum(exact) if sum(exact) > 0 else 0.0
    whole = [int(value * scale) for value in exact]
    by_remainder = sorted(range(len(shown)), key=lambda i: (whole[i] - exact[i] * scale, i))
    for i in by_remainder[: spare - sum(whole)]:
        whole[i] += 1
    return tuple(1 + extra for extra in whole) + tuple(0 for _ in slices[width:])


def bar(share: float, glyph: str = "█") -> str:
    """For tables that are drawn where pictures are not: `share` of the longest bar's `BAR` characters, at least one
    where there is anything."""
    return glyph * max(round(BAR * share), 1 if share > 0 else 0)
