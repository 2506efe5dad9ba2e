"""How far predictions of the clinic missed, for the ranges of later ones (`perfdoctor/diagnosis/calibration.py`).

    python -m benchmarks.clinic --full --output clinic.jsonl    judge, with truths measured on this machine
    python -m benchmarks.calibrate clinic.jsonl                 keep this machine's predictions; widen by all machines'
    python -m benchmarks.calibrate                              the same from what is kept

What it prints is the share of truths within ranges that were widened without the program in question.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from perfdoctor.diagnosis.calibration import MISSES, Ends, miss, widening

from .clinic import truth
from .clinic.asking import results
from .clinic.case import SEALED, cases
from .clinic.kept import Book

KEPT = Path(__file__).parent / "clinic" / "predictions"
FIRST_ANSWERS = Path(__file__).parent / "clinic" / "first_answers.json"
"""Ranges as they were told, widened by the misses of the clinic alone, about programs that were new to the tool: the
latest blind sets, whose fixes were timed. No `high`: "at least"."""
_OF_FIRST_ANSWERS = 0.88
"""The rest was wrong in kind (a part of the cost was not seen): ranges that hold it would say nothing."""
_SEED = 1


def measured(book: Path) -> list[dict[str, Any]]:
    """The first prediction for each program's cause, as the check gave it, beside what the fix is worth."""
    known = truth.known()
    found = []
    for result in results([*cases(), *cases(SEALED)], Book(book), _SEED, True, known).get("perfdoctor", []):
        if result.prediction is None or result.truth is None:
            continue
        claim = next(claim for claim in result.right if claim.speed_up)
        low, high = claim.before_widening or (claim.speed_up[0], claim.speed_up[2]) if claim.speed_up else (1.0, 1.0)
        found.append({"program": result.case, "finding": claim.id, "low": low, "high": high, "true": result.truth.gain})
    return found


def kept() -> list[dict[str, Any]]:
    """All that is kept, of every machine."""
    return [one for file in sorted(KEPT.glob("*.json")) for one in json.loads(file.read_text())]


def misses(predictions: list[dict[str, Any]]) -> dict[str, list[Ends]]:
    """By the code of the check."""
    by_check: dict[str, list[Ends]] = {}
    for one in predictions:
        code = one["finding"].partition(".")[0]
        below, above = miss(one["low"], one["high"], one["true"])
        by_check.setdefault(code, []).append((round(below, 3), round(above, 3)))
    return {code: sorted(many) for code, many in sorted(by_check.items())}


def covered(predictions: list[dict[str, Any]]) -> int:
    """How many truths lie in ranges widened by what the other programs missed."""
    hits = 0
    for one in predictions:
        others = misses([other for other in predictions if other["program"] != one["program"]])
        hits += _inside(one, widening(others, one["finding"].partition(".")[0]))
    return hits


def unseen(told: list[dict[str, Any]]) -> float:
    """The power to which both ends are to be moved for all but a few of these truths to lie inside (split conformal
    prediction: with one more among them than there are)."""
    powers = sorted(max(1.0, *_moved(one)) for one in told)
    return round(powers[min(len(powers), math.ceil(_OF_FIRST_ANSWERS * (len(powers) + 1))) - 1], 3)


def _moved(one: dict[str, Any]) -> Ends:
    below, above = miss(one["low"], one.get("high") or math.inf, one["true"])
    return 1 / below if below > 0 else math.inf, above


def _inside(one: dict[str, Any], widened: Ends = (1.0, 1.0)) -> bool:
    low, high = one["low"] ** widened[0], one["high"] ** widened[1]
    return bool(low <= one["true"] <= high)


def main() -> None:
    if len(sys.argv) > 1:
        KEPT.mkdir(exist_ok=True)
        file = KEPT / truth.file_of(truth.machine()).name
        file.write_text(json.dumps(measured(Path(sys.argv[1])), indent=1) + "\n")
    every = kept()
    told = json.loads(FIRST_ANSWERS.read_text())
    MISSES.write_text(json.dumps({"misses": misses(every), "unseen": unseen(told)}, indent=1) + "\n")
    inside = sum(map(_inside, every))
    print(
        f"{len(every)} predictions: {inside} truths within the range of the check, {covered(every)} within the widened"
    )


if __name__ == "__main__":
    main()
