"""How often `perfdoctor profile` names the hottest line: programs of the clinic whose lines are timed in the same run.

    python -m benchmarks.hottest [--seconds 5] [PROGRAM ...]

What is known comes from the line window, in which Python tells of every line that begins, so that a clock times each:
it has nothing of a sampler. Printed are the hottest line by samples, and that of the clock. Each program takes about 15
seconds.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from pathlib import Path

from benchmarks.clinic import case, running
from perfdoctor.config.settings import Config
from perfdoctor.evidence import lines, steady
from perfdoctor.evidence.model import Missing
from perfdoctor.launch import command as commands
from perfdoctor.observation.session import Request, record
from perfdoctor.profiles.build import build
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import Recording
from perfdoctor.recording.reader import read

PROGRAMS = (
    "cell_masks",
    "coin_lightning",
    "heartbeat_conv",
    "furnace_log",
    "latent_denoiser",
    "loom_patterns",
    "meter_autoencoder",
    "stable_norm",
    "support_desk",
    "bond_energy",
)
Line = tuple[str, int]


def recorded(program: case.Program, where: Path, seconds: float) -> Recording:
    """One run, with samples and the line window."""
    directory = RunDirectory.create(where / "runs", program.case.name)
    request = Request(
        command=commands.verbatim(running.command(program)),
        config=Config(seconds=seconds),
        to_end=False,
        output="file",
        windows=("lines",),
        environment=running.environment(program),
        cwd=where,
        samples=1,
    )
    with running.surroundings(program):
        record(request, directory, lambda progress: None)
    return read(directory)


def by_clock(recording: Recording) -> dict[Line, float]:
    """Milliseconds per step, by the line window."""
    (process, *_) = recording.ranks
    selection = steady.select(process)
    found: defaultdict[Line, float] = defaultdict(float)
    timed = lines.code_lines(
        process, selection if isinstance(selection, Missing) else steady.measure(process, selection)
    )
    for line in () if isinstance(timed, Missing) else timed:
        found[line.site.file, line.site.line] += line.ms_per_step
    return found


def by_samples(recording: Recording) -> dict[Line, float]:
    """The same by samples."""
    found: defaultdict[Line, float] = defaultdict(float)
    profiles = build(recording)
    for line in () if isinstance(profiles, Missing) else profiles[0].lines:
        found[line.site.file, line.site.line] += line.ms
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=PROGRAMS)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    right = 0
    print("| program | hottest by samples | share | by the clock | share |\n|---|---|---|---|---|")
    for name in options.programs:
        program = case.write(case.load(case.PROGRAMS / f"{name}.py"), seed=1)
        with running.folder(program) as where:
            recording = recorded(program, where, options.seconds)
        sampled, clocked = by_samples(recording), by_clock(recording)
        cells = [_hottest(sampled), _hottest(clocked)]
        first = max(sampled, key=sampled.__getitem__, default=("", 0))
        right += bool(sampled and clocked) and first == max(clocked, key=clocked.__getitem__)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"\n{right} of {len(options.programs)} as the clock has it")


def _hottest(lines: dict[Line, float]) -> str:
    if not lines:
        return "none | "
    (file, line), ms = max(lines.items(), key=lambda item: item[1])
    return f"{file}:{line} | {100 * ms / sum(lines.values()):.0f} %"


if __name__ == "__main__":
    main()
