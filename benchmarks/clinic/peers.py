"""What a user would otherwise reach for, each judged generously: a right cause in its own words counts.

- TraceML: its summary's warnings. Its step markers, which it asks users to write, are put into the program for it.
- Scalene: the line that takes the most time counts as the right cause when it is one of the lines to change. It never
  says that anything is wrong, so it gives no false alarm.
- torch.profiler: the operator with the largest self time, read as a cause where it names one.
- CPU utilisation: the rules that monitoring tools have.

TraceML and Scalene are installed into an environment of their own. A run that takes longer than `TIMEOUT_S` is ended
and counts as no judgement; so does one whose output cannot be read.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from . import running
from .case import Program
from .judgement import Claim, Judgement

ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-peers"
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
MARKED = Path(__file__).with_name("marked.py")
PROFILED = Path(__file__).with_name("profiled.py")
TIMEOUT_S = 60.0
"""Six times what the longest program takes by itself."""
_WANTED = ("torch", "scalene", "traceml-ai", "numpy", "lightning", "transformers", "accelerate", "psutil")
_INSTALLED = ENVIRONMENT / "installed"
"""Made last: an environment that was left half-way is finished by the next run."""

_TRACEML = {
    "INPUT_BOUND": ("PD03",),
    "COMPUTE_BOUND": ("PD05", "PD07", "PD09"),
    "RESIDUAL_HEAVY": ("PD10", "PD04"),
    "HIGH_CPU": ("PD12", "PD13"),
    "HIGH_PROCESS_CPU": ("PD13",),
    "HIGH_HOST_MEMORY": ("PD08",),
    "HIGH_PROCESS_RSS": ("PD08",),
}
"""Its diagnoses and the checks they amount to, whichever of them is right."""
_OPERATORS = (
    ("DataLoader", ("PD03",)),
    ("_local_scalar_dense", ("PD10",)),
    ("aten::item", ("PD10",)),
    ("slow_conv", ("PD02", "PD07")),
    ("thnn_conv", ("PD02",)),
    ("softmax", ("PD02",)),
    ("aten::bmm", ("PD02",)),
    ("aten::to", ("PD07",)),
    ("_to_copy", ("PD07",)),
    ("aten::copy_", ("PD07", "PD10")),
    ("aten::select", ("PD10",)),
    ("aten::empty", ("PD08",)),
    ("aten::fill_", ("PD08",)),
)
"""Parts of names of operators, and the causes that they hint at; products hint at none."""
_IDLE = 0.7
"""Of one core: below, monitoring tools say that the job waits for data or that its batch is too small."""


def known() -> dict[str, Callable[[Program], Judgement]]:
    """By name."""
    return {"TraceML": traceml, "Scalene": scalene, "torch.profiler": profiler, "CPU utilisation": utilisation}


def _tool(name: str) -> str:
    if not _INSTALLED.exists():
        venv.create(ENVIRONMENT, with_pip=True)
        # As the Makefile's pip: PIP_ARGS may say where torch is to come from.
        extra = shlex.split(os.environ.get("PIP_ARGS", ""))
        pip = [ENVIRONMENT / "bin" / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, *extra]
        subprocess.run([*pip, *_WANTED], check=True)
        _INSTALLED.touch()
    return str(ENVIRONMENT / "bin" / name)


def _cannot(program: Program) -> Judgement | None:
    """Peers are shown single processes only."""
    return Judgement(skipped="not shown to peers under a launcher") if program.case.launcher else None


def _claims(codes: tuple[str, ...], program: Program) -> tuple[Claim, ...]:
    """One claim for a hint at several causes: the right one if it is among them."""
    wanted = [one for one in program.case.expect if one.partition(".")[0] in codes]
    return (Claim(wanted[0] if wanted else codes[0]),) if codes else ()


def traceml(program: Program) -> Judgement:
    """`traceml run`, with its step markers."""
    if (cannot := _cannot(program)) is not None:
        return cannot
    began = time.monotonic()
    with running.folder(program) as where:
        done = running.run([_tool("traceml"), "run", str(MARKED), "--args", program.file], program, where, TIMEOUT_S)
        files = sorted(where.glob("logs/*/final_summary.json"))
        if not files:
            return Judgement(failure=f"exit code {done.returncode}: {done.stdout[-300:]}{done.stderr[-500:]}")
        summary = json.loads(files[0].read_text())
    return Judgement(traceml_claims(summary, program), seconds=time.monotonic() - began)


def traceml_claims(summary: dict[str, Any], program: Program) -> tuple[Claim, ...]:
    """What it only informs of ("compute-bound") counts where it is right, and is no alarm elsewhere."""
    primary = summary["primary_diagnosis"]
    informed = primary["kind"] if primary["severity"] == "info" else ""
    return tuple(
        claim
        for kind in dict.fromkeys([primary["kind"], *(issue["kind"] for issue in _issues(summary))])
        for claim in _claims(_TRACEML.get(kind, ()), program)
        if kind != informed or (program.sick and claim.id in program.case.expect)
    )


def _issues(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Warnings of all sections."""
    sections = [section for section in summary.values() if isinstance(section, dict)]
    issues = [issue for section in sections for issue in section.get("issues", [])]
    return [issue for issue in issues if issue.get("severity") in ("warn", "warning", "critical", "error")]


def scalene(program: Program) -> Judgement:
    """`scalene run`: its hottest line."""
    if (cannot := _cannot(program)) is not None:
        return cannot
    began = time.monotonic()
    with running.folder(program) as where:
        report = where / "scalene.json"
        done = running.run(
            [_tool("scalene"), "run", "--cpu-only", "-o", str(report), program.file], program, where, TIMEOUT_S
        )
        if not report.exists():
            return Judgement(failure=f"exit code {done.returncode}: {done.stderr[-500:]}")
        files = json.loads(report.read_text())["files"]
    lines = [line for name, file in files.items() if Path(name).name == program.file for line in file["lines"]]
    hottest = max(lines, key=_share, default=None)
    right = hottest is not None and hottest["lineno"] in program.lines
    found = tuple(Claim(one, file=program.file, line=hottest["lineno"]) for one in program.case.expect[:1] if right)
    return Judgement(found, seconds=time.monotonic() - began)


def _share(line: dict[str, Any]) -> float:
    return float(line["n_cpu_percent_python"] + line["n_cpu_percent_c"] + line["n_sys_percent"])


def profiler(program: Program) -> Judgement:
    """20 steps under torch.profiler: the operator with the largest self time."""
    if (cannot := _cannot(program)) is not None:
        return cannot
    began = time.monotonic()
    with running.folder(program) as where:
        python, *rest = running.command(program)
        done = running.run([python, str(PROFILED), *rest], program, where, TIMEOUT_S)
        words = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("largest: ")]
    if not words:
        return Judgement(failure=f"exit code {done.returncode}: {done.stderr[-500:]}")
    codes = next((causes for part, causes in _OPERATORS if part in words[-1]), ())
    return Judgement(_claims(codes, program), seconds=time.monotonic() - began)


def utilisation(program: Program) -> Judgement:
    """psutil beside the job, and the rules of thumb."""
    began = time.monotonic()
    with running.folder(program) as where, running.surroundings(program) as before:
        job = psutil.Popen(
            [*before, *running.command(program)],
            cwd=where,
            env=running.environment(program),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        mine, others = [], []
        try:
            while job.poll() is None and time.monotonic() - began < TIMEOUT_S:
                machine = psutil.cpu_percent(1.0) / 100 * psutil.cpu_count()
                try:
                    cores = sum(one.cpu_percent() for one in _processes(job)) / 100
                except psutil.Error:
                    continue
                mine.append(cores)
                others.append(machine - cores)
        finally:
            for process in _processes(job):
                process.kill()
            job.wait()
    return Judgement(_by_rule(mine[2:], others[2:], program), seconds=time.monotonic() - began)


def _processes(job: psutil.Popen) -> list[psutil.Process]:
    try:
        return [*(known_process(one.pid) for one in job.children(recursive=True)), known_process(job.pid)]
    except psutil.Error:
        return []


_SEEN: dict[int, psutil.Process] = {}


def known_process(pid: int) -> psutil.Process:
    """The same object each time: its CPU percentage is since the last question."""
    return _SEEN.setdefault(pid, psutil.Process(pid))


def _by_rule(mine: list[float], others: list[float], program: Program) -> tuple[Claim, ...]:
    """Below 70 % of a core it waits (data, or a batch that is too small); a busy machine has neighbours; more busy
    threads than CPUs are too many."""
    if not mine:
        return ()
    busy, beside = sum(mine) / len(mine), sum(others) / len(others)
    found: list[Claim] = []
    if beside > 0.5:
        found += _claims(("PD12",), program)
    if busy < _IDLE:
        found += _claims(("PD03", "PD05"), program)
    if busy > 1.5:
        found += _claims(("PD13", "PD06"), program)
    return tuple(found)
