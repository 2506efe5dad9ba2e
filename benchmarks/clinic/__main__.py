"""The clinic: every case through perfdoctor (and its peers), scored against what the fixes are truly worth.

    python -m benchmarks.clinic                  the smoke subset, about 10 minutes
    python -m benchmarks.clinic --full           all cases, three severities
    python -m benchmarks.clinic --only NAME ...  these cases
    python -m benchmarks.clinic --sealed         those that were written blind and kept for the last measurement
    python -m benchmarks.clinic --truth [--full] measure what the fixes are worth, and keep it
    python -m benchmarks.clinic --list           what there is, by check and stratum

Prints a table. `--output FILE` keeps every judgement as it comes, a line of JSON each, and adds to what the file
has: with `--resume` a long run can be made in pieces. `--scores FILE` writes the table's numbers as JSON. Run it on a
machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from rich.console import Console

from . import asking, doctor, peers, running, truth
from .case import SEALED, Case, cases
from .kept import Book
from .quota import NotAllowedError
from .summary import scores
from .table import inventory, render


def chosen(options: argparse.Namespace) -> list[Case]:
    """By name, or the smoke subset, or all."""
    some = cases(SEALED) if options.sealed else cases()
    if options.only:
        unknown = set(options.only) - {case.name for case in some}
        if unknown:
            sys.exit(f"there is no case {', '.join(sorted(unknown))}: --list shows those that there are")
        return [case for case in some if case.name in options.only]
    return [case for case in some if options.full or options.sealed or case.smoke]


def measure(some: list[Case], options: argparse.Namespace) -> None:
    """Fill the store: each fix alone, and all of them together."""
    known = {name for name, one in truth.known().items() if one.here}
    for case in some:
        if not case.twins:
            continue
        everything = frozenset(case.illnesses)
        for severity in asking.severities(case, options.full):
            for cured in dict.fromkeys([everything, *(frozenset({one}) for one in case.illnesses)]):
                name = truth.key(case, options.seed, severity, cured)
                if options.resume and name in known:
                    continue
                try:
                    found = truth.measure(case, options.seed, severity, cured, options.rounds)
                except NotAllowedError as error:
                    print(f"{name}: {asking.NOT_ALLOWED}: {error}", file=sys.stderr)
                    continue
                except RuntimeError as error:
                    print(f"{name}: not measured, --resume tries again: {error}", file=sys.stderr)
                    continue
                truth.store({name: found})
                line = f"{found.gain:.2f}x [{found.low:.2f}, {found.high:.2f}] A/A {found.control:.2f} {found.label}"
                print(f"{name}: {line}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all cases at three severities")
    parser.add_argument("--sealed", action="store_true", help="the sealed cases, when nothing is changed any more")
    parser.add_argument("--threads", metavar="N", help="OMP_NUM_THREADS of the programs; without it none is set")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases")
    parser.add_argument("--seed", type=int, default=1, help="draws the sizes")
    parser.add_argument("--truth", action="store_true", help="measure what the fixes are worth instead of asking")
    parser.add_argument("--rounds", type=int, default=3, help="of such a measurement")
    parser.add_argument("--peers", action="store_true", help="ask the other tools too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep each judgement there as it comes")
    parser.add_argument("--resume", action="store_true", help="leave out what --output, or the truths, already has")
    parser.add_argument("--show", action="store_true", help="the table of what --output has; runs nothing")
    parser.add_argument("--scores", type=Path, metavar="FILE", help="write the table's numbers as JSON")
    parser.add_argument("--list", action="store_true", help="how many cases there are, by check and stratum")
    options = parser.parse_args()
    os.environ[running.THREADS] = options.threads or ""
    some = chosen(options)
    if options.list:
        Console().print(inventory(cases()))
        return
    if options.truth:
        measure(some, options)
        return
    if options.show and options.output is None:
        parser.error("--show needs --output FILE, the file to show")
    book, states = Book(options.output), {"perfdoctor": doctor.state()}
    if not options.show:
        doctors = {"perfdoctor": doctor.judge, **(peers.known() if options.peers else {})}
        asking.judge(some, doctors, book, options.seed, options.full, options.resume, states)
    found = asking.results(some, book, options.seed, options.full, truth.known())
    if not any(found.values()):
        sys.exit("nothing has been judged: leave out --show, or name the file of an earlier run")
    Console().print(render(found))
    if old := asking.outdated(some, book, options.seed, options.full, states):
        print(f"{old} judgements are of another state of perfdoctor: --resume asks for them again", file=sys.stderr)
    if options.scores:
        options.scores.write_text(json.dumps({"machine": truth.machine(), "doctors": scores(found)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
