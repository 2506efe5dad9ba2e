"""What the command line says about remedies before any job runs."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from perfdoctor.commands import explain
from perfdoctor.commands.check import Options, _also_try, _environment
from perfdoctor.commands.run import parse
from perfdoctor.commands.typed_job import TypedJob
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.injected._perfdoctor_probe.remedies import catalogue
from perfdoctor.launch.environment import found_library, preloading

TRYING = Options(TypedJob(("train.py",)), trial_seconds=120.0)


def test_remedies_are_sorted_into_launch_and_job() -> None:
    remedies = parse("memory.malloc, threads=1,threads.passive,vector-extensions.all")
    assert remedies.in_job == ("memory.malloc", "threads=1")
    assert remedies.environment["OMP_WAIT_POLICY"] == "PASSIVE" and remedies.environment["MKL_CBWR"] == ""


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("memory.maloc", "did you mean memory.malloc?"),
        ("thread=4", "did you mean threads=4?"),
        ("threads=many", "did you mean threads=1?"),
        ("gc.freeze=3", "did you mean gc.freeze?"),
        ("zzzzzz", "perfdoctor explain --remedies"),
        ("etl.replay", "upper bound only"),
        ("reads.deferred", "upper bound only"),
        ("", "perfdoctor run --apply"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_advice(words: str, advice: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        parse(words)
    assert advice in caught.value.advice and caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize(
    ("changes", "slug"),
    [
        ({"to_end": True}, "trial-to-end"),
        ({"trial_seconds": 0.0}, "trial-seconds"),
        ({"trial_seconds": None, "also_try": "gc.freeze"}, "try-without-trial"),
        ({"also_try": "gc.frieze"}, "unknown-remedy"),
    ],
)
def test_odd_trials_are_refused_before_the_job_starts(changes: dict[str, object], slug: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        _also_try(replace(TRYING, **changes))
    assert caught.value.slug == slug


@pytest.mark.parametrize("changes", [{"leave_at": 300}, {"leave_at": 0, "trial_seconds": None}])
def test_an_agreed_step_is_a_number_and_leaves_no_room_for_trials(changes: dict[str, object]) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        _environment(replace(TRYING, **changes))
    assert caught.value.slug == "leave-at"


def test_an_agreed_step_is_told_to_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    told = _environment(replace(TRYING, leave_at=300, trial_seconds=None))
    assert told is not None and (told["PERFDOCTOR_LEAVE_AT"], told["RANK"]) == ("300", "1")
    assert _environment(TRYING) is None, "ours as it is"


def test_more_remedies_may_be_named() -> None:
    assert _also_try(replace(TRYING, also_try="nothing, gc.freeze")) == ("nothing", "gc.freeze")
    assert _also_try(TRYING) == () == _also_try(replace(TRYING, trial_seconds=None))


def test_every_remedy_that_can_be_applied_is_listed() -> None:
    listed = explain.remedies()
    for entry in catalogue.ENTRIES:
        shown = any(line.split(" ")[0].partition("=")[0] == entry.name for line in listed.splitlines())
        assert shown == bool(entry.keep)
    assert "(the last digits of results differ)" in listed
    assert "a trial cannot take it back wholly" in listed and "needs a new launch" in listed


def test_a_library_is_preloaded_in_front_of_what_the_job_preloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libown.so")
    monkeypatch.setattr("perfdoctor.commands.run.found_library", lambda libraries: f"lib{libraries[0]}.so.2")
    assert parse("memory.jemalloc").environment == {"LD_PRELOAD": "libjemalloc.so.2:libown.so"}
    monkeypatch.setattr("perfdoctor.commands.run.found_library", lambda libraries: "")
    with pytest.raises(PerfdoctorError) as caught:
        parse("memory.tcmalloc")
    assert "no libtcmalloc_minimal" in str(caught.value) and "apt install" in caught.value.advice


def test_the_first_library_that_the_machine_has_is_taken() -> None:
    known = {"tcmalloc": "libtcmalloc.so.4"}
    assert found_library(("tcmalloc_minimal", "tcmalloc"), known.get) == "libtcmalloc.so.4"
    assert found_library(("jemalloc",), known.get) == ""
    assert preloading("libx.so", {}) == {"LD_PRELOAD": "libx.so"}


def test_checks_name_remedies_that_exist() -> None:
    """Read from the sources, because a finding is made only from evidence of an ill job."""
    names = {
        constant.value.rpartition("+")[2].partition("=")[0]
        for path in (Path(__file__).parent.parent / "checks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg in ("remedies", "remedy")
        for constant in ast.walk(node.value)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }
    # The beginning of names that are put together ends in a dot.
    begun = {name for name in names if name.endswith(".")}
    names -= begun
    assert {
        "gc.no-explicit",
        "memory.malloc",
        "threads",
        "batch.larger",
        "vector-extensions.all",
        "attention.sdpa",
    } <= names
    assert {"gc.every", "memory.jemalloc", "etl.persistent-workers", "etl.worker-threads", "reads.deferred"} <= names
    assert names - {"spin-collapse", "fused"} - catalogue.BY_NAME.keys() == set()
    # What no finding asks for: a change of none.
    rest = {name for name in catalogue.BY_NAME.keys() - names if not name.startswith(tuple(begun))}
    assert rest == {"nothing"}
