"""Whether the anatomy of the job adds up to the time that the job took, by a clock that is not perfdoctor's.

    python -m benchmarks.anatomy [NAME ...]
    python -m benchmarks.anatomy --whole [plain] [lightning] [transformers]

Programs of the clinic, Lightning and transformers among them, run to their end under a shell that notes when it starts
them and when they have ended. Printed are that time, the sum of the anatomy's parts, and by how much they differ.

With `--whole` jobs of ten epochs (`jobs/ten_epochs.py`) are ended by perfdoctor when it has seen enough. Printed are
how long they take without it, and when it watches them to their end; what it extrapolates and from how many steps; and
of the parts that come once an epoch what they are extrapolated to, beside what they took in the job that it watched.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .clinic import running
from .clinic.case import Program, cases, write

PROGRAMS = [
    "basket_ranker",
    "cart_pole",
    "coin_lightning",
    "headline_trainer",
    "kelp_keeper",
    "keyword_spotter",
    "lightning_waves",
    "load_forecast",
    "molecule_energy",
    "prose_trainer",
    "ticket_tagger",
    "verse_writer",
]
JOB = Path(__file__).parent / "jobs" / "ten_epochs.py"
LOOPS = ("plain", "lightning", "transformers")
RARE = ("epoch_starts", "evaluation", "checkpoints")
_TIMED = 'date +%s.%N > began; "$@"; date +%s.%N > ended'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs of the clinic, or jobs of ten epochs")
    parser.add_argument("--whole", action="store_true", help="what is extrapolated")
    options = parser.parse_args()
    if options.whole:
        off = [_extrapolated(name) for name in options.names or LOOPS]
    else:
        off = [
            _observed(write(case, 1, 1, frozenset(case.illnesses)))
            for case in cases()
            if case.name in (options.names or PROGRAMS)
        ]
    print(f"at most {100 * max(off, default=0.0):.2f} % off")


def _observed(program: Program) -> float:
    """By how much the parts of a job that ran to its end differ from its time, as a share of that."""
    with running.folder(program) as where:
        parts = _told(["sh", "-c", _TIMED, "sh", *running.command(program)], where, "--to-end")["parts"]
        took = float((where / "ended").read_text()) - float((where / "began").read_text())
    told = sum(parts.values()) / 1000
    print(f"{program.case.name}: {took:.3f} s, told {told:.3f} s, {100 * (told / took - 1):+.2f} %", flush=True)
    return abs(told / took - 1)


def _extrapolated(name: str) -> float:
    """The same of what is extrapolated of a job of ten epochs; 0 where nothing is."""
    command = [sys.executable, str(JOB), name]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        took = time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder:
        parts = _told(command, Path(folder), "--to-end")["parts"]
    with tempfile.TemporaryDirectory() as folder:
        job = _told(command, Path(folder))
    whole = job["whole"]
    if "wall_ms" not in whole:
        print(f"{name}: {took:.1f} s; not extrapolated: {whole}", flush=True)
        return 0.0
    told, watched = whole["wall_ms"] / 1000, (sum(parts.values()) - parts["observing"]) / 1000
    print(
        f"{name}: {took:.1f} s, watched to its end {watched:.1f} s",
        f"extrapolated from {job['steps']} of {whole['steps']} steps {told:.1f} s, {100 * (told / took - 1):+.1f} %",
        *(f"{part} {whole['parts'][part]:.0f} ms (seen to its end: {parts[part]:.0f})" for part in RARE),
        f"not seen: {', '.join(whole['unseen']) or 'nothing'}; once: {', '.join(whole['once']) or 'nothing'}",
        sep="; ",
        flush=True,
    )
    return abs(told / took - 1)


def _told(job: list[str], where: Path, *options: str) -> Mapping[str, Any]:
    """The anatomy of the job, as perfdoctor reports it."""
    doctor = str(Path(sys.executable).with_name("perfdoctor"))
    options = ("--runs", "runs", "--output", "json:report.json", "--job-output", "file", *options)
    command = [doctor, "check", *options, "--", *job]
    subprocess.run(command, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    told: Mapping[str, Any] = json.loads((where / "report.json").read_text())["job"]
    return told


if __name__ == "__main__":
    main()
