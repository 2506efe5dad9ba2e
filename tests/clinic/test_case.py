"""A case is read from its block, and written out as the program that is run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.clinic import running
from benchmarks.clinic.case import SEALED, Case, cases, load, write

BLOCK = """# /// clinic
# expect = ["PD07.float64", "PD04"]
# stratum = "twins"
# domain = "tabular"
# sizes = {WIDTH = [8, 4000]}
# severities = {ROWS = [3, 2, 1]}
# cure = {OMP_NUM_THREADS = "2"}
# ///
"""
BODY = '''"""Learns."""

WIDTH = 64
ROWS = 0
x = 1.0  # sick here
x = 1  # well
y = 2  # sick:a
y = 3  # well:a
print(x)  # here
# well, this comment stays
'''


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "learns.py"
    path.write_text(BLOCK + BODY)
    return load(path)


def test_a_block_says_what_is_true_of_the_program(case: Case) -> None:
    assert (case.name, case.stratum, case.domain) == ("learns", "twins", "tabular")
    assert list(case.expect) == ["PD07.float64", "PD04"]
    assert case.twins
    assert case.illnesses == ("", "a")


def test_the_sick_variant_has_no_marks_and_says_nothing(case: Case) -> None:
    program = write(case, seed=1, severity=0)
    assert program.sick
    lines = program.source.splitlines()
    assert lines[4:7] == ["x = 1.0", "y = 2", "print(x)"]
    assert lines[3] == "ROWS = 3"
    assert lines[-1] == "# well, this comment stays"
    assert program.lines == (5, 7)
    assert "sick" not in program.source and "clinic" not in program.source
    assert "learns" not in program.file
    assert program.environment == {}


def test_the_well_variant_differs_by_the_fixes_alone(case: Case) -> None:
    sick, well = write(case, 1), write(case, 1, cured=frozenset(("", "a")))
    assert not well.sick
    pairs = zip(sick.source.splitlines(), well.source.splitlines(), strict=True)
    assert [pair for pair in pairs if pair[0] != pair[1]] == [("x = 1.0", "x = 1"), ("y = 2", "y = 3")]
    assert well.environment == {"OMP_NUM_THREADS": "2"}


def test_one_fix_of_two_leaves_it_sick(case: Case) -> None:
    program = write(case, 1, cured=frozenset("a"))
    assert program.sick
    assert "y = 3" in program.source and "x = 1.0" in program.source
    assert program.environment == {}


def test_where_neighbours_are_what_is_wrong_the_well_variant_has_none(tmp_path: Path) -> None:
    path = tmp_path / "beside.py"
    path.write_text('# /// clinic\n# stratum = "contended"\n# domain = "x"\n# neighbours = 2\n# ///\nprint(1)\n')
    case = load(path)
    sick, well = write(case, 1), write(case, 1, cured=frozenset(("",)))
    assert (sick.sick, sick.neighbours) == (True, 2)
    assert (well.sick, well.neighbours) == (False, 0)


def test_a_quota_alone_is_what_is_wrong_and_with_a_cure_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "boxed.py"
    block = '# /// clinic\n# stratum = "contended"\n# domain = "x"\n# quota = 0.5\n{}# ///\nprint(1)\n'
    path.write_text(block.format(""))
    sick, well = write(load(path), 1), write(load(path), 1, cured=frozenset(("",)))
    assert (sick.quota, well.quota, well.sick) == (0.5, 0.0, False)
    path.write_text(block.format('# cure = {OMP_NUM_THREADS = "1"}\n'))
    well = write(load(path), 1, cured=frozenset(("",)))
    assert (well.quota, well.environment) == (0.5, {"OMP_NUM_THREADS": "1"})


def test_an_empty_variable_is_not_set_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    case = Case("one", "x = 1\n", "twins", "x", environment={"OMP_NUM_THREADS": "", "ATEN_CPU_CAPABILITY": ""})
    variables = running.environment(write(case, 1))
    assert "OMP_NUM_THREADS" not in variables and "ATEN_CPU_CAPABILITY" not in variables


def test_threads_are_told_to_programs_on_demand_only(monkeypatch: pytest.MonkeyPatch) -> None:
    program = write(Case("two", "x = 1\n", "twins", "x"), 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # the benchmark's own
    assert "OMP_NUM_THREADS" not in running.environment(program)
    monkeypatch.setenv(running.THREADS, "1")
    assert running.environment(program)["OMP_NUM_THREADS"] == "1"


def test_sizes_are_drawn_by_the_seed_within_their_limits(case: Case) -> None:
    widths = {int(write(case, seed).source.splitlines()[2].removeprefix("WIDTH = ")) for seed in range(20)}
    assert len(widths) > 10
    assert all(8 <= width <= 4000 for width in widths)


@pytest.mark.parametrize("text", ["print(1)\n", BLOCK.replace('"twins"', '"cousins"') + BODY])
def test_a_file_that_is_no_case_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "case.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"case\.py"):
        load(path)


@pytest.mark.parametrize("code", [f"PD{number}" for number in range(14, 21)])
def test_the_checks_beyond_the_first_thirteen_have_decoys_of_their_own(code: str) -> None:
    decoys = [one for one in cases() if code in one.resembles]
    assert len(decoys) >= 3
    assert all(one.stratum == "decoys" and code not in one.allow for one in decoys)


@pytest.mark.parametrize("one", [*cases(), *cases(SEALED)], ids=lambda case: case.name)
def test_every_program_is_python_in_every_variant(one: Case) -> None:
    everything = frozenset(one.illnesses)
    sources = {write(one, 1, severity, cured).source for severity in range(3) for cured in (frozenset(), everything)}
    for source in sources:
        ast.parse(source)
    if one.twins and not one.cure and not one.by_surroundings:
        assert len(sources) > 1
    if one.stratum in ("twins", "comorbid", "contra"):
        assert one.twins and one.expect
    elif one.stratum == "contended":
        assert one.expect and one.twins and (one.neighbours or one.quota)
    else:
        assert not one.expect
