from __future__ import annotations

import dataclasses
from datetime import date, timedelta
from pathlib import Path

import pytest

from perfdoctor.config.rules import Rule
from perfdoctor.config.settings import Config, Selection
from perfdoctor.config.suppressions import MalformedComment, Suppression, inline_suppression, match
from perfdoctor.diagnosis.diagnoses import SuppressedFinding
from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Location, Savings, Severity
from perfdoctor.diagnosis.suppress import Sifted, sift, suppression_notes

TODAY = date(2030, 6, 15)
FINDING = Finding(
    id="PD04.explicit-collect",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    message="gc.collect() is called",
    evidence=(),
    fix=Fix("remove it"),
    savings=Savings(1.0, 0.5, 1.0, 0.1, "measured"),
    location=Location("src/train.py", 3, "evaluate"),
)
OTHER = dataclasses.replace(FINDING, id="PD04.old-generation", location=None)
ACCEPTED = Suppression("PD04.explicit-collect", "needed", origin="suppress[1] in perfdoctor.toml")


def _no_comment(_: Finding) -> None:
    return None


def _sift(
    *suppressions: Suppression, findings: tuple[Finding, ...] = (FINDING,), config: Config | None = None
) -> Sifted:
    return sift(findings, dataclasses.replace(config or Config(), suppressions=suppressions), TODAY, _no_comment)


# ---------------------------------------------------------------------------------------------------------
# One suppression and one finding


@pytest.mark.parametrize("code", ["PD04", "PD04.explicit-collect"])
def test_a_check_or_a_full_id_names_the_finding(code: str) -> None:
    assert match(Suppression(code, "why"), FINDING, TODAY) == "active"


@pytest.mark.parametrize("check", ["PD16.anomaly-detection", "PD17.state-copies", "PD17.slow-update"])
def test_a_finding_that_another_check_makes_now_is_still_accepted_by_its_former_id(check: str) -> None:
    moved = dataclasses.replace(FINDING, id=check)
    assert match(Suppression(check.replace(check[:4], "PD10"), "why"), moved, TODAY) == "active"
    assert match(Suppression("PD10", "why"), moved, TODAY) == "no"


@pytest.mark.parametrize("code", ["PD", "PD0", "PD03", "PD04.explicit", "PD04.old-generation", "PD04."])
def test_the_start_of_a_code_and_other_codes_do_not(code: str) -> None:
    assert match(Suppression(code, "why"), FINDING, TODAY) == "no"


@pytest.mark.parametrize(
    "where",
    [
        "train.py",
        "src/train.py",
        "./train.py",
        "train.py::evaluate",
        "src/train.py::evaluate",
        "train.py::Job.evaluate",
    ],
)
def test_a_place_matches_the_end_of_the_path_and_the_function(where: str) -> None:
    assert match(Suppression("PD04", "why", where), FINDING, TODAY) == "active"


@pytest.mark.parametrize(
    "where", ["rain.py", "other/train.py", "a/src/train.py", "train.py::eval", "train.py::fit", "/src/train.py", "src"]
)
def test_another_file_or_function_does_not_match(where: str) -> None:
    assert match(Suppression("PD04", "why", where), FINDING, TODAY) == "no"


def test_an_absolute_location_is_matched_by_its_end_too() -> None:
    elsewhere = dataclasses.replace(FINDING, location=Location("/opt/lib/train.py", 3, "Job.evaluate"))
    assert match(Suppression("PD04", "why", "lib/train.py::evaluate"), elsewhere, TODAY) == "active"
    assert match(Suppression("PD04", "why", "/opt/lib/train.py"), elsewhere, TODAY) == "active"


def test_a_finding_without_a_place_is_matched_by_its_code_alone() -> None:
    assert match(Suppression("PD04", "why"), OTHER, TODAY) == "active"
    assert match(Suppression("PD04", "why", "train.py"), OTHER, TODAY) == "no"


def test_a_suppression_counts_until_the_end_of_its_last_day() -> None:
    assert match(Suppression("PD04", "why", expires=TODAY), FINDING, TODAY) == "active"
    assert match(Suppression("PD04", "why", expires=TODAY - timedelta(days=1)), FINDING, TODAY) == "expired"
    assert match(Suppression("PD03", "why", expires=TODAY - timedelta(days=1)), FINDING, TODAY) == "no"


# ---------------------------------------------------------------------------------------------------------
# Comments


def _comment(tmp_path: Path, *lines: str) -> Suppression | MalformedComment | None:
    """What the source says about FINDING, which is on its third line."""
    (tmp_path / "src").mkdir(exist_ok=True)
    (tmp_path / "src" / "train.py").write_text("\n".join(lines))
    return inline_suppression(FINDING, tmp_path)


def test_a_comment_on_the_line_silences_the_finding(tmp_path: Path) -> None:
    said = _comment(tmp_path, "", "", "gc.collect()  # perfdoctor: ignore[PD04.explicit-collect] -- memory is short")
    assert said == Suppression("PD04.explicit-collect", "memory is short", origin="src/train.py:3")


@pytest.mark.parametrize(
    ("comment", "reason"),
    [
        ("# perfdoctor: ignore[PD04] -- why", "why"),
        ("#perfdoctor:ignore[PD04]--why", "why"),
        ("# perfdoctor: ignore[PD03, PD04] -- see issue #12", "see issue #12"),
        ("# noqa: E501  # perfdoctor: ignore[PD04] -- why", "why"),
        ("# perfdoctor: ignore[PD04] -- why  # noqa: E501", "why"),
    ],
)
def test_comments_are_read_with_their_neighbours(tmp_path: Path, comment: str, reason: str) -> None:
    said = _comment(tmp_path, "", "", f"x()  {comment}")
    assert isinstance(said, Suppression)
    assert (said.code, said.reason) == ("PD04", reason)


def test_comment_lines_directly_above_count(tmp_path: Path) -> None:
    above = "    # perfdoctor: ignore[PD04] -- why"
    said = _comment(tmp_path, above, "    # perfdoctor: ignore[PD10] -- another", "    x()")
    assert said == Suppression("PD04", "why", origin="src/train.py:1")
    assert _comment(tmp_path, above, "", "x()") is None


def test_a_comment_behind_the_code_above_belongs_to_that_code(tmp_path: Path) -> None:
    assert _comment(tmp_path, "", "x()  # perfdoctor: ignore[PD04] -- why", "y()") is None


def test_no_comment_is_looked_for_in_files_that_nobody_wrote(tmp_path: Path) -> None:
    """A recording, which may be anybody's, names the file: it may be as large as a disk."""
    lines = ("", "", "x()  # perfdoctor: ignore[PD04] -- why", *["#" * 1000] * 4001)
    assert _comment(tmp_path, *lines) is None
    assert _comment(tmp_path, *lines[:3]) is not None


def test_a_comment_for_another_check_says_nothing(tmp_path: Path) -> None:
    assert _comment(tmp_path, "", "", "x()  # perfdoctor: ignore[PD10] -- why") is None
    assert _comment(tmp_path, "", "", "x()  # perfdoctor: ignore[PD10]") is None


@pytest.mark.parametrize(
    ("comment", "problem"),
    [
        ("ignore[PD04]", "reason"),
        ("ignore[PD04] --", "reason"),
        ("ignore[PD04] --  # noqa", "reason"),
        ("ignore[PD04] because", "reason"),
        ("ignore", "names no check"),
        ("ignore[]", "names no check"),
        ("ignore PD04 -- why", "names no check"),
    ],
)
def test_a_comment_without_a_reason_or_a_check_is_malformed(tmp_path: Path, comment: str, problem: str) -> None:
    said = _comment(tmp_path, "", "", f"x()  # perfdoctor: {comment}")
    assert isinstance(said, MalformedComment)
    assert said.place == "src/train.py:3"
    assert problem in said.problem


def test_a_good_comment_wins_over_a_malformed_one(tmp_path: Path) -> None:
    said = _comment(tmp_path, "", "# perfdoctor: ignore[PD04] -- why", "x()  # perfdoctor: ignore")
    assert isinstance(said, Suppression)


def test_lines_are_counted_as_python_counts_them(tmp_path: Path) -> None:
    said = _comment(tmp_path, "a = '\x0c \u2028'\r", "\r", "x()  # perfdoctor: ignore[PD04] -- why\r", "")
    assert isinstance(said, Suppression)


def test_no_source_means_no_comment(tmp_path: Path) -> None:
    assert inline_suppression(FINDING, tmp_path) is None
    assert inline_suppression(OTHER, tmp_path) is None
    for file in ("<string>", ".", "a\0b", "a" * 5000):
        assert inline_suppression(dataclasses.replace(FINDING, location=Location(file, 1)), tmp_path) is None


def test_a_line_beyond_the_source_has_no_comment(tmp_path: Path) -> None:
    assert _comment(tmp_path, "# perfdoctor: ignore[PD04] -- why") is None


# ---------------------------------------------------------------------------------------------------------
# All findings of a check


def test_a_suppressed_finding_is_kept_apart_with_the_reason() -> None:
    sifted = _sift(ACCEPTED, findings=(FINDING, OTHER))
    assert sifted == Sifted((OTHER,), (SuppressedFinding(FINDING, "needed"),), used=(ACCEPTED,))


def test_without_suppressions_everything_is_kept_in_order() -> None:
    assert _sift(findings=(OTHER, FINDING)) == Sifted((OTHER, FINDING))


def test_every_suppression_that_matches_is_used_and_the_first_gives_the_reason() -> None:
    broad = Suppression("PD04", "all of it")
    sifted = _sift(ACCEPTED, broad)
    assert sifted.used == (ACCEPTED, broad)
    assert sifted.suppressed[0].reason == "needed"


def test_an_expired_suppression_brings_the_finding_back() -> None:
    over = dataclasses.replace(ACCEPTED, expires=date(2030, 1, 1))
    assert _sift(over) == Sifted((FINDING,), lapsed=(over,))


def test_a_comment_suppresses_like_the_configuration() -> None:
    comment = Suppression("PD04", "by comment", origin="train.py:3")
    sifted = sift((FINDING,), Config(), TODAY, lambda _: comment)
    assert sifted == Sifted((), (SuppressedFinding(FINDING, "by comment"),), used=(comment,))


def test_a_malformed_comment_suppresses_nothing_and_is_told_once() -> None:
    comment = MalformedComment("train.py:3", "it gives no reason")
    sifted = sift((FINDING, FINDING), Config(), TODAY, lambda _: comment)
    assert sifted == Sifted((FINDING, FINDING), malformed=(comment,))


def test_an_ignored_finding_is_still_listed() -> None:
    config = Config(selections=(Selection(select=("PD",), ignore=("PD04.explicit-collect",)),))
    sifted = _sift(findings=(FINDING, OTHER), config=config)
    assert sifted.kept == (OTHER,)
    assert [s.finding for s in sifted.suppressed] == [FINDING]
    assert "ignore" in sifted.suppressed[0].reason


def test_the_level_of_a_rule_replaces_the_measured_severity() -> None:
    sifted = _sift(config=Config(rules=(Rule("PD04", "note"),)))
    assert sifted.kept == (dataclasses.replace(FINDING, severity=Severity.NOTE),)


# ---------------------------------------------------------------------------------------------------------
# Notes


def _notes(*suppressions: Suppression, judged: tuple[str, ...] = ("PD03", "PD04")) -> list[tuple[str, str, Severity]]:
    config = Config(suppressions=suppressions)
    notes = suppression_notes(config, [sift((FINDING,), config, TODAY, _no_comment)], judged, TODAY)
    return [(note.code, note.name, note.severity) for note in notes]


def test_a_used_suppression_is_not_noted() -> None:
    assert _notes(ACCEPTED) == []


def test_an_unused_suppression_is_noted_when_its_check_came_to_a_verdict() -> None:
    unused = Suppression("PD03.too-few-workers", "why")
    assert _notes(unused) == [("PD91", "unused-suppression", Severity.NOTE)]
    assert _notes(unused, judged=("PD04",)) == []


def test_an_expired_suppression_is_a_warning_when_its_finding_is_back_and_a_note_when_not() -> None:
    over = dataclasses.replace(ACCEPTED, expires=date(2030, 1, 1))
    assert _notes(over) == [("PD91", "expired-suppression", Severity.WARNING)]
    gone = dataclasses.replace(over, code="PD03")
    assert _notes(gone) == [("PD91", "expired-suppression", Severity.NOTE)]


def test_an_expired_suppression_next_to_one_that_counts_can_be_removed() -> None:
    over = dataclasses.replace(ACCEPTED, expires=date(2030, 1, 1))
    assert _notes(over, ACCEPTED) == [("PD91", "expired-suppression", Severity.NOTE)]


def test_a_note_names_the_entry_the_code_and_the_place() -> None:
    config = Config(suppressions=(dataclasses.replace(ACCEPTED, where="eval.py::run"),))
    (note,) = suppression_notes(config, [], ["PD04"], TODAY)
    for part in ("suppress[1] in perfdoctor.toml", "PD04.explicit-collect", "eval.py::run"):
        assert part in note.message


def test_malformed_comments_are_warned_of_with_their_place() -> None:
    comment = MalformedComment("train.py:3", "it gives no reason")
    (note,) = suppression_notes(Config(), [Sifted((FINDING,), malformed=(comment,))] * 2, ["PD04"], TODAY)
    assert (note.code, note.name, note.severity) == ("PD91", "malformed-suppression", Severity.WARNING)
    assert "train.py:3" in note.message
