"""From blocks to a gain with an interval.

The unit is a pair of neighbouring blocks, one with the remedy and one without: steps of one block are not
independent, pairs in random order nearly are. Source of the interval: Student's t on the pairs' log ratios, and what
launches differ by, which the blocks of one launch cannot show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..diagnosis.measured import Gain, Range, Verdict
from ..recording.trials import Block
from .blocks import LEAST_PAIRS

CONFIDENCE = 0.99
"""Of the interval; a remedy that does nothing is claimed to help once in 200 trials."""
MOST_PAIRS = 24
LEAST_LAUNCHES = 3
"""Pairs of launches: few, because each takes seconds, so the interval is wide."""
_PRECISION = 0.03
"""Half of the interval, in logarithms, with which a trial has done its work ..."""
_OF_PREDICTED = 0.15
"""... or this part of the gain that was predicted, if that is more: 1.7x needs not be known to 3 %."""
_WORST_PRECISION = 0.10
_BETWEEN_LAUNCHES = 0.05
"""Standard deviation between launches of one job, as a share of the gain's logarithm: 0.03 to 0.06 where two to four
trials were made of collections, float64, anomaly detection and the allocator (docs/trials.md). As a share, because a
remedy that does nothing does nothing in every launch."""
_CONTENDED = 0.05
"""Share of a block in which its thread wanted a CPU and had none ..."""
_UNUSUAL = 3.0
"""... and that is so many times what is usual for blocks of its kind."""
_ODD_SHARE = 0.2
"""Steps that begin an epoch are left out, unless more than this part of the steps do."""
_MOSTLY = 0.5
"""With more pairs than this contended, what is left is no fair choice."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two blocks of a pair."""

    without: Block
    with_remedy: Block

    @property
    def log_ratio(self) -> float:
        """Of the time per sample: above 0 where the remedy is faster."""
        ratio = block_ms(self.without) / self.without.work / (block_ms(self.with_remedy) / self.with_remedy.work)
        return math.log(ratio)


def block_ms(block: Block) -> float:
    """The mean step of a block, without those that begin an epoch.

    A mean and no median, because a pause every few steps (a collection, a batch that is late) is what some remedies
    are about. A block of whole epochs is all of its steps: its remedy is about how epochs begin.
    """
    walls = np.asarray(block.wall_us, dtype=np.float64) / 1000
    if block.epochs:
        return max(float(walls.mean()), 1e-6)
    regular = np.ones(walls.size, dtype=bool)
    regular[list(block.odd)] = False
    if walls.size - regular.sum() <= _ODD_SHARE * walls.size:
        walls = walls[regular]
    return max(float(walls.mean()), 1e-6)


def pairs_of(blocks: Sequence[Block]) -> list[Pair]:
    """Whole pairs among the blocks of one trial: blocks 0 and 1, 2 and 3, and so on."""
    by_pair: dict[int, list[Block]] = {}
    for block in blocks:
        if not block.error and block.wall_us:
            by_pair.setdefault(block.block // 2, []).append(block)
    pairs = []
    for _, group in sorted(by_pair.items()):
        without = [block for block in group if not block.remedy]
        treated = [block for block in group if block.remedy]
        if len(without) == len(treated) == 1:
            pairs.append(Pair(without[0], treated[0]))
    return pairs


def undisturbed(pairs: Sequence[Pair]) -> list[Pair]:
    """Those in which the job had its CPU as usual in both blocks. What is usual is judged for each kind apart: a
    remedy may itself change how often the job waits for a CPU."""
    limits = {}
    for kind in ("without", "with_remedy"):
        shares = [_delay_share(getattr(pair, kind)) for pair in pairs]
        limits[kind] = max(_CONTENDED, _UNUSUAL * float(np.median(shares))) if shares else _CONTENDED
    return [pair for pair in pairs if all(_delay_share(getattr(pair, kind)) <= limits[kind] for kind in limits)]


def _delay_share(block: Block) -> float:
    """Of the block, the part in which others had the job's CPU, or a quota took it: the larger, because a thread that
    a quota stops is counted as waiting on some kernels."""
    return max(block.delay_us or 0, block.throttled_us or 0) / max(1, sum(block.wall_us))


def _disturbed(pairs: Sequence[Pair], good: Sequence[Pair]) -> str:
    """Why there are too few pairs."""
    lost = [pair for pair in pairs if pair not in good]
    taken = sum(block.throttled_us or 0 for pair in lost for block in (pair.without, pair.with_remedy))
    waited = sum(block.delay_us or 0 for pair in lost for block in (pair.without, pair.with_remedy))
    who = "the CPU quota of the job's control group" if 2 * taken > waited > 0 else "other processes"
    were = "was" if len(lost) == 1 else "were"
    return f"{len(lost)} of {len(pairs)} pairs of blocks {were} disturbed by {who}, and there was no time for more"


def gain_of(log_ratios: Sequence[float]) -> tuple[float, float, float]:
    """The factor and its interval from at least two independent log ratios."""
    from scipy.special import stdtrit  # only here; scipy.stats would take 0.7 s to import

    values = np.asarray(log_ratios, dtype=np.float64)
    middle = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = float(stdtrit(values.size - 1, (1 + CONFIDENCE) / 2)) * error
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def measured(blocks: Sequence[Block]) -> tuple[Verdict, Gain | None, str]:
    """What the blocks of one trial say, so far, and why if nothing."""
    error = next((block.error for block in blocks if block.error), "")
    pairs = pairs_of(blocks)
    good = undisturbed(pairs)
    if len(good) < LEAST_PAIRS:
        if error:
            return Verdict.NOT_MEASURED, None, error
        if len(pairs) >= LEAST_PAIRS:
            return Verdict.NOT_MEASURED, None, _disturbed(pairs, good)
        return Verdict.NOT_MEASURED, None, f"only {len(pairs)} of at least {LEAST_PAIRS} pairs of blocks were seen"
    if len(good) < _MOSTLY * len(pairs):
        return Verdict.NOT_MEASURED, None, _disturbed(pairs, good)
    factor, low, high = gain_of([pair.log_ratio for pair in good])
    gain = Gain(
        factor=factor,
        low=low,
        high=high,
        pairs=len(good),
        dropped=len(pairs) - len(good),
        steps=min(pair.without.n for pair in good),
        step_ms=float(np.median([block_ms(pair.without) for pair in good])),
    )
    return verdict_of(gain), gain, ""


def start_s(blocks: Sequence[Block]) -> float | None:
    """Seconds that the first block with the remedy took before its steps counted, beyond what such steps take: it
    compiled. None without one that counted."""
    treated = [block for block in blocks if block.remedy and block.wall_us]
    if not treated:
        return None
    first = treated[0]
    usual_us = 1000 * float(np.median([block_ms(block) for block in treated])) * len(first.settling_us)
    return max(0.0, first.switch_us + sum(first.settling_us) - usual_us) / 1e6


def verdict_of(gain: Gain) -> Verdict:
    """By where the interval lies."""
    if gain.low > 1:
        return Verdict.HELPED
    return Verdict.HURT if gain.high < 1 else Verdict.NO_DIFFERENCE


def of_any_launch(gain: Gain) -> Gain:
    """The same with the interval of what other launches would measure: both variances add up."""
    from scipy.special import ndtri

    middle = math.log(gain.factor)
    within = math.log(gain.high / gain.low) / 2
    half = math.hypot(within, float(ndtri((1 + CONFIDENCE) / 2)) * _BETWEEN_LAUNCHES * middle)
    return replace(gain, low=math.exp(middle - half), high=math.exp(middle + half))


def precise_enough(gain: Gain, predicted: Range | None) -> bool:
    """Whether to stop. Of this launch's own interval: more blocks narrow nothing else. Never asks where the interval
    lies, only how wide it is: stopping on the result would make chance look like a gain."""
    wanted = _OF_PREDICTED * abs(math.log(predicted.middle)) if predicted else 0.0
    return math.log(gain.high / gain.low) / 2 <= min(_WORST_PRECISION, max(_PRECISION, wanted))


def by_trial(blocks: Sequence[Block]) -> Mapping[int, Sequence[Block]]:
    """The blocks of each trial, by its number."""
    found: dict[int, list[Block]] = {}
    for block in blocks:
        found.setdefault(block.trial, []).append(block)
    return found
