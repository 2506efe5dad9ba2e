"""Checks of third parties, through a package that is really there: a `.dist-info` with an entry point."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sections import SECTIONS, missing_sections

from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.diagnosis.registry import discover
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit

Install = Callable[..., None]

DOC = "\n\n".join(f"{title}\n{'-' * len(title)}\nText." for title in SECTIONS)
CHECK = '''"""A check of somebody else.

{doc}
"""
from perfdoctor.api.findings import Check, Measurement, Outcome, clear
from perfdoctor.api.quantities import Evidence


def examine(evidence: Evidence, limits: None) -> Outcome:
    return clear("fine", Measurement("answer", 42, "count"))


CHECK = Check(code="{code}", name="theirs", title="theirs", limits=None, examine=examine)
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with one module and its entry point on `sys.path`."""
    before = set(sys.modules)

    def put(source: str, name: str = "their_check", target: str = "") -> None:
        (tmp_path / f"{name}.py").write_text(source)
        information = tmp_path / f"{name}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[perfdoctor.checks]\n{name} = {target or name}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("their_"):
            del sys.modules[name]


def _refused() -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught:
        discover()
    assert caught.value.slug == "check-load"
    assert caught.value.exit_code is Exit.INTERNAL == 5
    assert caught.value.advice
    return caught.value


def test_the_built_in_checks_are_found_in_the_order_of_their_codes() -> None:
    codes = [entry.check.code for entry in discover()]
    assert codes == sorted(codes)
    assert codes == [f"PD{number:02}" for number in range(1, 21)]


def test_siblings_with_an_underscore_are_no_checks() -> None:
    assert all("._" not in entry.check.examine.__module__ for entry in discover())


@pytest.mark.parametrize("target", ["their_check", "their_check:CHECK"])
def test_a_third_partys_check_is_found_with_its_documentation(install: Install, target: str) -> None:
    install(CHECK.format(doc=DOC, code="PD77"), target=target)
    theirs = next(entry for entry in discover() if entry.check.code == "PD77")
    assert missing_sections(theirs.doc) == ()
    assert theirs.check.examine(None, None).kind is OutcomeKind.CLEAR  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import a_module_that_is_not_there", "ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("", "no attribute CHECK"),
        ("CHECK = 'a check'", "no attribute CHECK"),
    ],
)
def test_a_check_that_cannot_be_loaded_fails_the_run(install: Install, source: str, why: str) -> None:
    install(source)
    error = _refused()
    assert "their_check" in error.message
    assert why in error.message


def test_an_entry_point_to_nothing_fails_the_run(install: Install) -> None:
    install("", target="their_module_that_is_not_there")
    assert "their_module_that_is_not_there" in _refused().message


def test_two_checks_with_one_code_fail_the_run(install: Install) -> None:
    install(CHECK.format(doc=DOC, code="PD03"))
    assert "two checks are called PD03" in _refused().message


def test_discovery_is_as_before_once_the_package_is_gone() -> None:
    assert "PD77" not in [entry.check.code for entry in discover()]
