"""Who imports whom, read from the sources: stages depend on earlier stages only, and the probe on nothing."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROBE = "perfdoctor.injected._perfdoctor_probe"
REMEDIES = f"{PROBE}.remedies.catalogue"
"""Names and words only, no torch."""

BASICS = ("perfdoctor.errors", "perfdoctor.exits", "perfdoctor.version")
RECORDS = f"{PROBE}.records"

FLOORS: tuple[tuple[str, ...], ...] = (
    ("perfdoctor.exits", "perfdoctor.version"),
    ("perfdoctor.errors",),
    (PROBE,),
    ("perfdoctor.recording",),
    ("perfdoctor.launch", "perfdoctor.monitor", "perfdoctor.traces"),
    ("perfdoctor.storage",),
    ("perfdoctor.evidence",),
    ("perfdoctor.config",),
    ("perfdoctor.diagnosis",),
    ("perfdoctor.api",),
    ("perfdoctor.checks",),
    ("perfdoctor.observation",),
    ("perfdoctor.trials",),
    ("perfdoctor.gate",),
    ("perfdoctor.profiles",),
    ("perfdoctor.report",),
    ("perfdoctor.commands",),
    ("perfdoctor.cli", "perfdoctor.notebook"),
)
"""The rooms of the house from the ground up: each imports only from those below it, and a room beside it never."""

NARROWER: dict[str, tuple[str, ...]] = {
    PROBE: (),
    "perfdoctor.recording": (RECORDS, *BASICS),
    "perfdoctor.launch": (RECORDS, "perfdoctor.recording.directory", *BASICS),
    "perfdoctor.monitor": (RECORDS, "perfdoctor.recording.machine", "perfdoctor.recording.host", *BASICS),
    "perfdoctor.traces": ("perfdoctor.recording.base", "perfdoctor.recording.directory", *BASICS),
    "perfdoctor.evidence": ("perfdoctor.recording", "perfdoctor.launch.masking", "perfdoctor.traces.model"),
    "perfdoctor.storage": ("perfdoctor.launch.masking", "perfdoctor.recording.directory", *BASICS),
    "perfdoctor.config": ("perfdoctor.storage.urls", *BASICS),
    "perfdoctor.diagnosis": ("perfdoctor.evidence.model", "perfdoctor.evidence.causes", "perfdoctor.config", *BASICS),
    "perfdoctor.profiles": (
        RECORDS,
        "perfdoctor.recording",
        "perfdoctor.evidence.steady",
        "perfdoctor.evidence.windows",
        *BASICS,
    ),
    "perfdoctor.api": (
        "perfdoctor.diagnosis.costs",
        "perfdoctor.diagnosis.findings",
        "perfdoctor.diagnosis.outcomes",
        "perfdoctor.evidence.model",
        "perfdoctor.evidence.causes",
    ),
    "perfdoctor.checks": ("perfdoctor.api",),
}
"""What a room may import of those below it, where that is not all of them."""

TYPES_ONLY = {"perfdoctor.config": ("perfdoctor.diagnosis.findings", "perfdoctor.diagnosis.outcomes")}
"""What it may name under `if TYPE_CHECKING` besides."""

BEFORE_TORCH: dict[str, set[str]] = {
    "__init__": {"os", "sys"},
    "affinity": {"_thread", "os", "sys"},
    "distant": {"os", "sys", "time"},
    "imports": {"sys", "time", "_thread"},
    "process": {"os", "sys", "time"},
    "recorder": {"os", "time"},
    "records": set(),
    "spark": {"os"},
    "stop": {"os", "sys"},
    "torch_import": {"sys", "time"},
}
"""Modules of the probe that run before the job's first line, and what they may import: all of it is loaded in a bare
interpreter, or built in, so no file of the user's can be shadowed by it."""


def _sources() -> Iterator[tuple[str, Path]]:
    """Every module of ours with its dotted name."""
    for top, package in ((ROOT / "perfdoctor", "perfdoctor"), (ROOT / "checks", "perfdoctor.checks")):
        for path in sorted(top.rglob("*.py")):
            parts = [package, *path.relative_to(top).with_suffix("").parts]
            yield ".".join(parts).removesuffix(".__init__"), path


SOURCES = dict(_sources())


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


@functools.cache
def _imports(module: str, path: Path) -> tuple[tuple[str, bool], ...]:
    """Each file is read once, whichever test asks."""
    return tuple(_imported(module, path))


def _imported(module: str, path: Path) -> Iterator[tuple[str, bool]]:
    """Everything that a module imports, as dotted names; and whether for types only."""
    is_package = path.name == "__init__.py"
    tree = ast.parse(path.read_text())
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.split(".")
                above = above[: len(above) - node.level + is_package]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                # `from .x import y` imports the module x, unless y is a module itself.
                yield (name if name in SOURCES else base), node in typing_only


def _ours(module: str) -> list[tuple[str, bool]]:
    found = _imports(module, SOURCES[module])
    return [(name, typed) for name, typed in found if _is_within(name, "perfdoctor") or "_perfdoctor_probe" in name]


def _room(module: str) -> str:
    """The room that the module is in; "" for the package itself and its `__main__`."""
    return next((room for floor in FLOORS for room in floor if _is_within(module, room)), "")


def _below(room: str) -> tuple[str, ...]:
    height = next(number for number, floor in enumerate(FLOORS) if room in floor)
    return NARROWER.get(room, tuple(lower for floor in FLOORS[:height] for lower in floor))


# ---------------------------------------------------------------------------------------------------------


WITH_SYSTEM = ("comparison", "interleaving", "worktrees", "untracked", "git", "trial_job", "failure")
PURE = [m for m in SOURCES if _is_within(m, "perfdoctor.gate") and m.rpartition(".")[2] not in WITH_SYSTEM]
"""What the gate decides with: numbers in, verdict out."""


@pytest.mark.parametrize("module", PURE)
def test_what_decides_touches_no_system(module: str) -> None:
    names = {name.partition(".")[0] for name, _ in _imports(module, SOURCES[module])}
    assert names & {"os", "subprocess", "time", "pathlib", "psutil", "torch", "socket", "random"} == set()


def test_every_module_is_in_a_room() -> None:
    free = ("perfdoctor", "perfdoctor.__main__")
    lost = [m for m in SOURCES if not _room(m) and m not in free and not _is_within(m, "perfdoctor.injected")]
    assert lost == [], "no control flow lies loose at the top: give it a room"


@pytest.mark.parametrize("room", [room for floor in FLOORS for room in floor])
def test_imports_go_one_way(room: str) -> None:
    modules = [module for module in SOURCES if _room(module) == room]
    assert modules, "nobody lives there"
    for module in modules:
        for name, types_only in _ours(module):
            allowed = (room, *_below(room), *(TYPES_ONLY.get(room, ()) if types_only else ()))
            assert any(_is_within(name, a) for a in allowed), f"{module} imports {name}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {m: {n for n, typed in _ours(m) if not typed and n in SOURCES and n != m} for m in SOURCES}
    while True:
        ends = {m for m, needs in graph.items() if not needs & graph.keys()}
        if not ends:
            break
        graph = {m: needs for m, needs in graph.items() if m not in ends}
    # What is left either is in a circle or leads into one.
    assert sorted(graph) == []


def test_no_check_is_imported_by_name() -> None:
    importers = {
        module
        for module in SOURCES
        for name, _ in _ours(module)
        if _is_within(name, "perfdoctor.checks") and not _is_within(module, "perfdoctor.checks")
    }
    assert importers == set()


def test_the_probe_needs_the_standard_library_and_torch() -> None:
    names = {(m, name) for m in SOURCES if _is_within(m, PROBE) for name, _ in _imports(m, SOURCES[m])}
    tops = {"torch", *sys.stdlib_module_names}
    assert [one for one in names if not _is_within(one[1], PROBE) and one[1].partition(".")[0] not in tops] == []
    assert len(names) > 300, "else this shows nothing"


# ---------------------------------------------------------------------------------------------------------
# Before torch


def _at_import(path: Path) -> set[str]:
    """Absolute imports outside of functions, and inside of those that run before torch: all but deferred ones."""
    return {
        name.partition(".")[0]
        for name, _ in _imports(f"{PROBE}.{path.stem}".removesuffix(".__init__"), path)
        if not _is_within(name, PROBE)
    }


@pytest.mark.parametrize("name", BEFORE_TORCH)
def test_before_torch_only_these_modules_are_imported(name: str) -> None:
    assert _at_import(ROOT / "perfdoctor/injected/_perfdoctor_probe" / f"{name}.py") <= BEFORE_TORCH[name]


def test_before_torch_the_probe_imports_of_itself_only_what_is_listed() -> None:
    folder = ROOT / "perfdoctor/injected/_perfdoctor_probe"
    for name in BEFORE_TORCH:
        tree = ast.parse((folder / f"{name}.py").read_text())
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.level:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                assert set(names) <= set(BEFORE_TORCH), f"{name} imports {names}"


def test_what_the_probe_imports_before_torch_is_in_a_bare_interpreter() -> None:
    listed = set().union(*BEFORE_TORCH.values())
    code = f"import sys; print(*sorted({sorted(listed)!r} - sys.modules.keys() - set(sys.builtin_module_names)))"
    code = code.replace("[", "{").replace("]", "}")
    bare = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert bare.stdout.strip() == ""


# ---------------------------------------------------------------------------------------------------------
# The command line starts fast


HEAVY = ("torch", "numpy", "scipy", "jinja2", "matplotlib", "psutil", "pynvml", "rich.console", "rich.live")


def _loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules, file=sys.__stderr__)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PERFDOCTOR_", "_TYPER"))}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["check", "--help"], ["report", "--help"], ["gate", "--help"], ["--version"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
import perfdoctor.cli
sys.argv = ["perfdoctor", *{arguments!r}]
try:
    perfdoctor.cli.main()
except SystemExit as end:
    assert not end.code, end.code
"""
    loaded = _loaded_by(code)
    assert "perfdoctor.cli" in loaded
    assert loaded & set(HEAVY) == set()


def test_judging_a_recording_needs_no_torch() -> None:
    loaded = _loaded_by("import perfdoctor.trials.judge, perfdoctor.report.console, perfdoctor.report.markdown")
    assert "torch" not in loaded


def test_loading_the_checks_needs_neither_torch_nor_numpy() -> None:
    loaded = _loaded_by("from perfdoctor.diagnosis.registry import discover; discover()")
    assert "perfdoctor.checks.etl" in loaded
    assert loaded & {"torch", "numpy", "scipy", "psutil"} == set()
