"""The clinic: every case through perfdoctor (and its peers), scored against what the fixes are truly worth.

    python -m benchmarks.clinic                  the smoke subset, about 10 minutes
    python -m benchmarks.clinic --full           all cases, three severities
    python -m benchmarks.clinic --truth [--full] measure what the fixes are worth, and keep it
    python -m benchmarks.clinic --only NAME ...  these cases

Prints a table; `--output FILE` writes everything as JSON. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from . import doctor, peers, truth
from .case import Case, Program, cases, write
from .judgement import Judgement
from .score import Result
from .table import render

Doctor = Callable[[Program], Judgement]
_TRUTHS = truth.STORE / "this-machine.json"
MIDDLE = 1


def chosen(options: argparse.Namespace) -> list[Case]:
    """By name, or the smoke subset, or all."""
    some = cases()
    if options.only:
        unknown = set(options.only) - {case.name for case in some}
        if unknown:
            sys.exit(f"there is no case {', '.join(sorted(unknown))}")
        return [case for case in some if case.name in options.only]
    return [case for case in some if options.full or case.smoke]


def severities(case: Case, full: bool) -> tuple[int, ...]:
    """All of them in a full run, the middle one else."""
    return (0, 1, 2) if full and case.severities else (MIDDLE,)


def variants(case: Case, seed: int, full: bool) -> Iterator[Program]:
    """What is judged: sick at each severity, then well."""
    everything = frozenset(case.illnesses)
    for severity in severities(case, full):
        yield write(case, seed, severity)
    if case.twins:
        yield write(case, seed, MIDDLE, everything)


def measure(some: list[Case], options: argparse.Namespace) -> None:
    """Fill the store: each fix alone, and all of them together."""
    for case in some:
        if not case.twins:
            continue
        everything = frozenset(case.illnesses)
        for severity in severities(case, options.full):
            for cured in {everything, *(frozenset({one}) for one in everything)}:
                found = truth.measure(case, options.seed, severity, cured, options.rounds)
                name = truth.key(case, options.seed, severity, cured)
                truth.store({name: found}, _TRUTHS)
                print(f"{name}: {found.gain:.2f}x [{found.low:.2f}, {found.high:.2f}] {found.label}", file=sys.stderr)


def result(program: Program, judgement: Judgement, seed: int, known: dict[str, truth.Truth]) -> Result:
    """With what is known of the program's fixes."""
    case = program.case
    everything = frozenset(case.illnesses)

    def gain(letter: str) -> float:
        measured = known.get(truth.key(case, seed, program.severity, frozenset({letter})))
        return measured.gain if measured else 0.0

    pairs = sorted(zip(map(gain, case.illnesses), case.expect, strict=False), reverse=True)
    return Result(
        case=case.name,
        stratum=case.stratum,
        sick=program.sick,
        expect=tuple(case.expect),
        allow=tuple(case.allow),
        file=program.file,
        lines=program.lines,
        truth=known.get(truth.key(case, seed, program.severity, everything)),
        order=tuple(one for worth, one in pairs if worth) if case.stratum == "comorbid" else (),
        judgement=judgement,
    )


def judge(some: list[Case], options: argparse.Namespace, doctors: dict[str, Doctor]) -> dict[str, list[Result]]:
    """Every program by every doctor."""
    known = truth.known(_TRUTHS)
    found: dict[str, list[Result]] = {name: [] for name in doctors}
    for case in some:
        for program in variants(case, options.seed, options.full):
            for name, ask in doctors.items():
                one = result(program, ask(program), options.seed, known)
                found[name].append(one)
                said = ", ".join(claim.id for claim in one.alarms) or one.judgement.failure.strip() or "nothing"
                state = "sick" if one.sick else "well"
                print(f"{case.name} {state} {program.severity}: {name} says {said}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--truth", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    some = chosen(options)
    if options.truth:
        measure(some, options)
        return
    doctors: dict[str, Doctor] = {"perfdoctor": doctor.judge}
    if options.peers:
        doctors |= peers.known()
    found = judge(some, options, doctors)
    Console().print(render(found))
    if options.output:
        plain = {name: [asdict(one) for one in results] for name, results in found.items()}
        options.output.write_text(json.dumps({"machine": truth.machine(), "results": plain}, indent=1) + "\n")


if __name__ == "__main__":
    main()
