"""What opportunities that perfdoctor showed are worth: each remedy on the whole program, beside runs without it.

    python -m benchmarks.clinic --only NAME ... --output judged.jsonl   judge
    python -m benchmarks.opportunities judged.jsonl [--rounds 2]        run with `perfdoctor run --apply`, and keep it

Only those that have a remedy: sparse gradients have none. A larger batch is left out too: a program that counts steps
times a constant does not see it, and one without a DataLoader has nothing to enlarge. One round tells a gain from none,
not how large it is, so what is kept widens no range. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .clinic import running, truth
from .clinic.case import SEALED, Program, cases, write
from .clinic.judgement import Claim
from .clinic.kept import Book, digest, key

WORTH = 1.03
"""A gain from which on an opportunity was worth showing."""
KEPT = Path(__file__).parent / "clinic" / "opportunities"
_SEED = 1
_COUNTED_OTHERWISE = "batch."
"""Remedies by which a step holds more samples."""


def shown(book: Book) -> Iterator[tuple[Program, Claim]]:
    """Every opportunity with a remedy, and the program that it was shown of, as that is now."""
    for case in [*cases(), *cases(SEALED)]:
        both = (write(case, _SEED, 1, cured) for cured in (frozenset[str](), frozenset(case.illnesses)))
        # A program without an illness is its own healed twin.
        for program in {key(program, _SEED): program for program in both}.values():
            entry = book.entries.get(("perfdoctor", key(program, _SEED)))
            if entry is None or entry.digest != digest(program):
                continue
            claims = [claim for claim in entry.judgement.claims if claim.remedies and claim.speed_up]
            tried = (claim for claim in claims if not claim.remedies[0].startswith(_COUNTED_OTHERWISE))
            yield from ((program, claim) for claim in tried if not claim.alarm)


def gain(program: Program, remedy: str, rounds: int) -> float:
    """Geometric mean over rounds of rates with the remedy over rates without, in random order."""
    apply = [str(Path(sys.executable).with_name("perfdoctor")), "run", "--apply", remedy, "--"]
    ratios = []
    for number in range(rounds):
        ways: list[list[str]] = [[], apply]
        random.Random(number).shuffle(ways)
        rates = {bool(before): running.rate(program, before) for before in ways}
        ratios.append(math.log(rates[True] / rates[False]))
    return math.exp(statistics.fmean(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("judged", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    measured: list[dict[str, Any]] = []
    for program, claim in shown(Book(options.judged)):
        assert claim.speed_up is not None
        low, high = claim.before_widening or (claim.speed_up[0], claim.speed_up[2])
        try:
            found = gain(program, claim.remedies[0], options.rounds)
        except RuntimeError as error:
            print(f"{key(program, _SEED)} {claim.id}: {error}", flush=True)
            continue
        print(f"{key(program, _SEED)} {claim.id}: {found:.2f}x, told {low:.2f}x to {high:.2f}x", flush=True)
        name = key(program, _SEED)
        measured.append({"program": name, "finding": claim.id, "low": low, "high": high, "true": found})
    worth = sum(one["true"] >= WORTH for one in measured)
    print(f"{worth} of {len(measured)} gain {WORTH}x or more")
    KEPT.mkdir(exist_ok=True)
    file = KEPT / truth.file_of(truth.machine()).name
    file.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
