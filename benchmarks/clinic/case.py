"""A case: a training program in two variants that differ by exactly the fix.

A program is a Python file that opens with a block of TOML in comments (the syntax of PEP 723):

    # /// clinic
    # expect = ["PD07.float64"]          the right findings, any of them; none for a program that nothing is wrong with
    # stratum = "twins"                  twins, decoys, contra, comorbid, placebo, out-of-scope, contended
    # domain = "tabular"
    # sizes = {WIDTH = [300, 500]}       constants of the program, drawn at random for each seed
    # severities = {ROWS = [64, 16, 4]}  and those that make it worse, mild first
    # ///

Below it a line that ends in `# sick` is there in the sick variant only, one that ends in `# well` in the well one only;
with `# sick:a` and `# well:a` there are several illnesses, each with a fix of its own. `# here` marks the line that the
finding should name. The program that is run has no such block and no such marks.
"""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
SEALED = Path(__file__).parent / "sealed"
"""Written without sight of the checks, and asked about once, when nothing is changed any more."""
STRATA = ("twins", "decoys", "contra", "comorbid", "placebo", "out-of-scope", "contended")
_NAMES = ("train", "main", "fit", "run", "experiment", "model", "job", "learn")
_BLOCK = re.compile(r"\A# /// clinic\n((?:#.*\n)+?)# ///\n")
_MARK = re.compile(r"  +# (?P<marks>(?:(?:sick|well)(?::[a-z])?|here)(?: (?:(?:sick|well)(?::[a-z])?|here))*)$")


@dataclass(frozen=True)
class Case:
    """One program and what is true of it."""

    name: str
    text: str
    stratum: str
    domain: str
    expect: Sequence[str] = ()
    """Finding ids or check codes, any of which is right in the sick variant. In `comorbid`: one for each illness."""
    resembles: Sequence[str] = ()
    """Of a decoy: checks whose symptom it has, or whose setting, without the cause or without the cost."""
    allow: Sequence[str] = ()
    """Codes that are true of it besides, in both variants: neither a hit nor a false alarm."""
    sizes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    severities: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables; one that is empty here is not set at all."""
    cure: Mapping[str, str] = field(default_factory=dict)
    """Variables of the well variant, where the fix is one."""
    launcher: Sequence[str] = ()
    """Put before the program: `torchrun --nproc-per-node 2`."""
    neighbours: int = 0
    """Other processes that each keep a core busy meanwhile."""
    quota: float = 0.0
    """CPUs that the control group around the job may use; 0 for no such group."""
    beyond: bool = False
    """The cure goes further than the advice (a batch 32 times as large instead of 4): what is predicted is not its
    worth."""
    smoke: bool = False
    endless: bool = False
    """It trains on and on, and prints no rate of its own at its end: its steps are counted (`counted.py`)."""

    @property
    def by_surroundings(self) -> bool:
        """Whether the neighbours or the quota are what is wrong: the well variant runs without them."""
        return (self.neighbours > 0 or self.quota > 0) and not self.cure and "# sick" not in self.text

    @property
    def twins(self) -> bool:
        """Whether there is anything to fix."""
        return any(mark in self.text for mark in ("# sick", "# well")) or bool(self.cure) or self.by_surroundings

    @property
    def illnesses(self) -> tuple[str, ...]:
        """Letters of the illnesses, in order; one without a letter is ""."""
        letters = {mark.group(1) or "" for mark in re.finditer(r"# (?:sick|well)(?::([a-z]))?", self.text)}
        return tuple(sorted(letters)) or ("",)


@dataclass(frozen=True)
class Program:
    """A case written out: one variant with its sizes."""

    case: Case
    severity: int
    cured: frozenset[str]
    """Illnesses that are not in it."""
    source: str
    file: str
    """A name that says nothing."""
    lines: tuple[int, ...]
    """Where the finding should point; empty when anywhere is fine."""
    environment: Mapping[str, str]
    neighbours: int
    quota: float

    @property
    def sick(self) -> bool:
        return self.case.twins and self.cured != frozenset(self.case.illnesses)


def load(path: Path) -> Case:
    """The case in a file. Raises ValueError when its block cannot be read."""
    text = path.read_text()
    block = _BLOCK.match(text)
    if block is None:
        raise ValueError(f"{path.name} does not open with a `# /// clinic` block")
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    facts = toml.loads("\n".join(line[2:] for line in block[1].splitlines()))
    case = Case(name=path.stem, text=text[block.end() :].lstrip("\n"), **facts)
    if case.stratum not in STRATA:
        raise ValueError(f"{path.name}: there is no stratum {case.stratum}")
    return case


def cases(folder: Path = PROGRAMS) -> list[Case]:
    """All of a folder, by name."""
    return [load(path) for path in sorted(folder.glob("*.py"))]


def write(case: Case, seed: int, severity: int = 1, cured: frozenset[str] = frozenset()) -> Program:
    """A variant. Twins of one seed and severity have the same sizes."""
    draw = random.Random(f"{case.name}/{seed}")
    constants: dict[str, Any] = {name: _drawn(draw, limits) for name, limits in case.sizes.items()}
    constants |= {name: values[min(severity, len(values) - 1)] for name, values in case.severities.items()}
    lines: list[str] = []
    here: list[int] = []
    for line in case.text.splitlines():
        mark = _MARK.search(line)
        words = mark["marks"].split() if mark else []
        if any(not _stays(word, cured) for word in words):
            continue
        lines.append(_with_constant(line[: mark.start()] if mark else line, constants))
        if "here" in words:
            here.append(len(lines))
    names = random.Random(f"{case.name}/{seed}/{severity}/{sorted(cured)}")
    well = case.twins and cured == frozenset(case.illnesses)
    alone = well and case.by_surroundings
    return Program(
        case=case,
        severity=severity,
        cured=cured,
        source="\n".join(lines) + "\n",
        file=names.choice(_NAMES) + ".py",
        lines=tuple(here),
        environment={**case.environment, **(case.cure if well else {})},
        neighbours=0 if alone else case.neighbours,
        quota=0.0 if alone else case.quota,
    )


def _stays(word: str, cured: frozenset[str]) -> bool:
    state, _, letter = word.partition(":")
    return state == "here" or (state == "well") == (letter in cured)


def _drawn(draw: random.Random, limits: Sequence[Any]) -> Any:
    """Between two whole numbers, or one of several values."""
    if len(limits) == 2 and all(isinstance(value, int) for value in limits):
        return draw.randint(limits[0], limits[1])
    return draw.choice(list(limits))


def _with_constant(line: str, constants: Mapping[str, Any]) -> str:
    name, equals, _ = line.partition(" = ")
    return f"{name} = {constants[name]!r}" if equals and name in constants else line
