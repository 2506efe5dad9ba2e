"""Judgements are kept as they come, and a later run goes on where an earlier one ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.clinic import asking
from benchmarks.clinic.case import Case, Program, write
from benchmarks.clinic.judgement import Claim, Judgement
from benchmarks.clinic.kept import Book, Entry, digest, key, read
from benchmarks.clinic.quota import NotAllowedError
from benchmarks.clinic.truth import Truth

CASE = Case("one", "x = 1  # sick\nx = 2  # well\n", "twins", "tabular", expect=("PD07.float64",))
TWO = Case("two", "x = 1  # sick:a\nx = 2  # sick:b\n", "comorbid", "tabular", expect=("PD07.float64", "PD04"))
SAID = Judgement((Claim("PD07.float64", "warning", "train.py", 3, (1.1, 1.2, 1.3), 1.4),), seconds=2.0)
SICK, WELL = write(CASE, 1), write(CASE, 1, cured=frozenset(("",)))


def entry(program: Program, judgement: Judgement = SAID, made_by: str = "") -> Entry:
    return Entry("perfdoctor", key(program, 1), digest(program), judgement, made_by)


def said(book: Book, program: Program, doctor: str = "perfdoctor", seed: int = 1) -> Judgement | None:
    found = book.entry(doctor, program, seed)
    return found.judgement if found is not None else None


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "clinic.jsonl"
    Book(file).add(entry(SICK))
    Book(file).add(entry(WELL, Judgement(skipped="not allowed here")))
    book = Book(file)
    assert said(book, SICK) == SAID
    assert said(book, WELL) == Judgement(skipped="not allowed here")
    assert said(book, SICK, "Scalene") is None
    assert said(book, SICK, seed=2) is None


def test_the_last_line_about_a_program_counts(tmp_path: Path) -> None:
    file = tmp_path / "clinic.jsonl"
    Book(file).add(entry(SICK))
    Book(file).add(entry(SICK, Judgement()))
    assert len(list(read(file))) == 2
    assert said(Book(file), SICK) == Judgement()


def test_a_cut_line_loses_one_program_only(tmp_path: Path) -> None:
    file = tmp_path / "clinic.jsonl"
    Book(file).add(entry(SICK))
    file.write_text(file.read_text() + '{"doctor": "perfd')
    Book(file).add(entry(WELL))
    book = Book(file)
    assert said(book, SICK) == SAID
    assert said(book, WELL) == SAID


def test_a_judgement_of_a_program_that_changed_since_says_nothing() -> None:
    book = Book()
    book.add(entry(SICK))
    changed = Case("one", "x = 7  # sick\nx = 2  # well\n", "twins", "tabular", expect=("PD07.float64",))
    slower = Case("one", CASE.text, "twins", "tabular", expect=("PD07.float64",), neighbours=1)
    assert said(book, write(changed, 1)) is None
    assert said(book, write(slower, 1)) is None


def test_a_resumed_run_asks_only_for_what_is_missing_or_failed() -> None:
    asked: list[str] = []

    def doctor(program: Program) -> Judgement:
        asked.append(key(program, 1))
        return SAID

    book = Book()
    book.add(entry(SICK))
    asking.judge([CASE], {"perfdoctor": doctor}, book, seed=1, full=False, resume=True)
    assert asked == ["one/1/1/well"]
    book.add(entry(SICK, Judgement(failure="exit code 3")))
    asking.judge([CASE], {"perfdoctor": doctor}, book, seed=1, full=False, resume=True)
    assert asked == ["one/1/1/well", "one/1/1/sick"]
    asking.judge([CASE], {"perfdoctor": doctor}, book, seed=1, full=False)
    assert len(asked) == 4


def test_what_an_earlier_state_of_the_doctor_said_is_asked_again_and_counted() -> None:
    book = Book()
    book.add(entry(SICK, made_by="old"))
    book.add(entry(WELL, made_by="new"))
    assert asking.outdated([CASE], book, 1, False, {"perfdoctor": "new"}) == 1
    asking.judge([CASE], {"perfdoctor": lambda program: Judgement()}, book, 1, False, True, {"perfdoctor": "new"})
    assert (said(book, SICK), said(book, WELL)) == (Judgement(), SAID)
    assert asking.outdated([CASE], book, 1, False, {"perfdoctor": "new"}) == 0


@pytest.mark.parametrize("error", [OSError("no such tool"), KeyError("kind"), TypeError("float")])
def test_a_doctor_that_breaks_has_no_judgement_and_the_run_goes_on(error: Exception) -> None:
    def doctor(program: Program) -> Judgement:
        raise error

    assert type(error).__name__ in asking.ask(doctor, SICK).failure


def test_what_is_not_allowed_here_is_no_failure() -> None:
    def doctor(program: Program) -> Judgement:
        raise NotAllowedError("read-only file system")

    assert asking.ask(doctor, SICK) == Judgement(skipped="not allowed here: read-only file system")


def test_results_know_what_the_fixes_are_worth() -> None:
    book = Book()
    for program in (SICK, WELL, write(TWO, 1)):
        book.add(entry(program))
    worth = Truth(gain=2.0, low=1.9, high=2.1, control=1.0, rounds=5)
    little = Truth(gain=1.2, low=1.1, high=1.3, control=1.0, rounds=5)
    known = {"one/1/1/-": worth, "two/1/1/ab": worth, "two/1/1/a": little, "two/1/1/b": worth}
    found = asking.results([CASE, TWO], book, seed=1, full=False, known=known)["perfdoctor"]
    assert [(one.case, one.sick, one.truth) for one in found] == [
        ("one", True, worth),
        ("one", False, worth),
        ("two", True, worth),
    ]
    assert found[2].order == ("PD04", "PD07.float64")
