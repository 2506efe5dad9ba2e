"""Which programs are judged, by whom, and what is known of each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil

from .case import Case, Program, write
from .judgement import Judgement
from .kept import Book, Entry, digest, key
from .quota import NotAllowedError
from .score import Result
from .truth import Truth
from .truth import key as truth_key

Doctor = Callable[[Program], Judgement]
MIDDLE = 1
_ATTEMPTS = 3
STOLEN = 0.05
"""Of the CPU time that was wanted: half of what PD12 names."""
_TELLING_S = 1.0
NOT_ALLOWED = "not allowed here"
_BROKEN = (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError, psutil.Error)
"""What a tool that does not work raises, or what it wrote when it is read: its own failure, not the clinic's."""


def severities(case: Case, full: bool) -> tuple[int, ...]:
    """All of them in a full run, the middle one else."""
    return (0, 1, 2) if full and case.severities else (MIDDLE,)


def variants(case: Case, seed: int, full: bool) -> Iterator[Program]:
    """What is judged: sick at each severity, then well."""
    for severity in severities(case, full):
        yield write(case, seed, severity)
    if case.twins:
        yield write(case, seed, MIDDLE, frozenset(case.illnesses))


def judge(
    some: Sequence[Case],
    doctors: Mapping[str, Doctor],
    book: Book,
    seed: int,
    full: bool,
    resume: bool = False,
    states: Mapping[str, str] | None = None,
) -> None:
    """Every program by every doctor, into the book. With `resume` only what it does not have yet.

    `states` says which state a doctor is in, by name: what an earlier one said is asked again.
    """
    for case in some:
        for program in variants(case, seed, full):
            for name, doctor in doctors.items():
                state = (states or {}).get(name, "")
                known = book.entry(name, program, seed) if resume else None
                if known is not None and not known.judgement.failure and known.made_by == state:
                    continue
                judgement = ask_undisturbed(doctor, program)
                book.add(Entry(name, key(program, seed), digest(program), judgement, state))
                print(f"{key(program, seed)}: {name} says {_said(judgement, case)}", file=sys.stderr, flush=True)


def ask_undisturbed(doctor: Doctor, program: Program) -> Judgement:
    """Again, at most twice, where the hypervisor gave the machine to others meanwhile.

    That is nothing of the program's: a doctor that sees it is right, and one that does not is judged by noise.
    """
    for _ in range(_ATTEMPTS - 1):
        before = psutil.cpu_times()
        judgement = ask(doctor, program)
        if judgement.skipped or stolen_share(before, psutil.cpu_times()) < STOLEN:
            return judgement
    return ask(doctor, program)


def stolen_share(before: Any, after: Any) -> float:
    """Of the CPU time that was wanted between two `psutil.cpu_times()`, what the hypervisor took.

    0 where the kernel does not tell, and of less than a second: it counts in hundredths.
    """
    spent = _spent(before, after)
    wanted = sum(spent.values()) - _idle(spent)
    return spent.get("steal", 0.0) / wanted if wanted > _TELLING_S else 0.0


def idle_share(before: Any, after: Any) -> float:
    """Of all CPU time between two `psutil.cpu_times()`, what nobody wanted; of less than a second, 1."""
    spent = _spent(before, after)
    total = sum(spent.values())
    return _idle(spent) / total if total > _TELLING_S else 1.0


def _spent(before: Any, after: Any) -> dict[str, float]:
    """Seconds by kind, without a guest's: Linux counts them in `user` as well."""
    kinds = [name for name in after._fields if not name.startswith("guest")]
    return {name: getattr(after, name) - getattr(before, name) for name in kinds}


def _idle(spent: dict[str, float]) -> float:
    return spent.get("idle", 0.0) + spent.get("iowait", 0.0)


def ask(doctor: Doctor, program: Program) -> Judgement:
    """A doctor that breaks has no judgement, and the others go on."""
    try:
        return doctor(program)
    except NotAllowedError as error:
        return Judgement(skipped=f"{NOT_ALLOWED}: {error}")
    except _BROKEN as error:
        return Judgement(failure=f"{type(error).__name__}: {error}")


def _said(judgement: Judgement, case: Case) -> str:
    named = ", ".join(claim.id for claim in judgement.alarms(tuple(case.allow)))
    return judgement.skipped or judgement.failure.strip() or named or "nothing"


def results(
    some: Sequence[Case], book: Book, seed: int, full: bool, known: Mapping[str, Truth]
) -> dict[str, list[Result]]:
    """What the book says of these cases, by doctor, with what is known of their fixes."""
    doctors = dict.fromkeys(name for name, _ in book.entries)
    return {
        name: [
            result(program, entry.judgement, seed, known)
            for case in some
            for program in variants(case, seed, full)
            if (entry := book.entry(name, program, seed)) is not None
        ]
        for name in doctors
    }


def outdated(some: Sequence[Case], book: Book, seed: int, full: bool, states: Mapping[str, str]) -> int:
    """How many of these judgements an earlier state of their doctor gave."""
    entries = [
        book.entry(name, program, seed) for name in states for case in some for program in variants(case, seed, full)
    ]
    return sum(entry is not None and entry.made_by != states[entry.doctor] for entry in entries)


def result(program: Program, judgement: Judgement, seed: int, known: Mapping[str, Truth]) -> Result:
    """With what is known of the program's fixes."""
    case = program.case
    everything = frozenset(case.illnesses)

    def gain(letter: str) -> float:
        measured = known.get(truth_key(case, seed, program.severity, frozenset({letter})))
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
        truth=known.get(truth_key(case, seed, program.severity, everything)),
        order=tuple(one for worth, one in pairs if worth) if case.stratum == "comorbid" else (),
        judgement=judgement,
        twin=case.twins,
        beyond=case.beyond,
    )
