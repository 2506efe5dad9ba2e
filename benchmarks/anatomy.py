"""Whether the anatomy of the job adds up to the time that the job took, by a clock that is not perfdoctor's.

    python -m benchmarks.anatomy [NAME ...]

Programs of the clinic, Lightning and transformers among them, run to their end under a shell that notes when it starts
them and when they have ended. Printed are that time, the sum of the anatomy's parts, and by how much they differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .clinic import running
from .clinic.case import cases, write

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
_TIMED = 'date +%s.%N > began; "$@"; date +%s.%N > ended'


def main() -> None:
    wanted = sys.argv[1:] or PROGRAMS
    worst = 0.0
    for case in cases():
        if case.name not in wanted:
            continue
        program = write(case, 1, 1, frozenset(case.illnesses))
        with running.folder(program) as where:
            told = _told(running.command(program), where)
            took = float((where / "ended").read_text()) - float((where / "began").read_text())
        worst = max(worst, abs(told / took - 1))
        print(f"{case.name}: {took:.3f} s, told {told:.3f} s, {100 * (told / took - 1):+.2f} %", flush=True)
    print(f"at most {100 * worst:.2f} % off")


def _told(job: list[str], where: Path) -> float:
    """Seconds, the sum of all parts."""
    doctor = str(Path(sys.executable).with_name("perfdoctor"))
    options = ["check", "--to-end", "--runs", "runs", "--output", "json:report.json", "--job-output", "file"]
    command = [doctor, *options, "--", "sh", "-c", _TIMED, "sh", *job]
    subprocess.run(command, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    parts: dict[str, float] = json.loads((where / "report.json").read_text())["job"]["parts"]
    return sum(parts.values()) / 1000


if __name__ == "__main__":
    main()
