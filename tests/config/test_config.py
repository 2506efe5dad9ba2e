from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from written_config import written

from perfdoctor.config.files import FILE, PYPROJECT, TOP_KEYS, load
from perfdoctor.config.rules import Rule
from perfdoctor.config.settings import Config, Selection
from perfdoctor.config.suppressions import Suppression
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit


def _error(tmp_path: Path, text: str, name: str = FILE) -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught:
        written(tmp_path, text, name)
    assert caught.value.exit_code is Exit.USAGE
    assert caught.value.slug.startswith("config-")
    assert caught.value.advice
    assert str(tmp_path / name) in caught.value.message
    return caught.value


# ---------------------------------------------------------------------------------------------------------
# Which file


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load(tmp_path) == Config(runs=tmp_path / ".perfdoctor" / "runs")


def test_the_nearest_file_wins_and_files_are_not_merged(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / FILE).write_text("steps = 1\nseconds = 1")
    (tmp_path / "a" / PYPROJECT).write_text("[tool.perfdoctor]\nsteps = 2")
    config = load(inner)
    assert (config.steps, config.seconds, config.source) == (2, None, tmp_path / "a" / PYPROJECT)


def test_perfdoctor_toml_wins_in_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / PYPROJECT).write_text("[tool.perfdoctor]\nsteps = 2")
    assert written(tmp_path, "steps = 1").steps == 1


@pytest.mark.parametrize(
    "text",
    [b"", b"[project]\nname = 'x'", b"[tool.ruff]\nfix = true", b"tool = 3 # perfdoctor", b"not toml [", b"\xff"],
)
def test_a_pyproject_without_the_section_is_passed_over(tmp_path: Path, text: bytes) -> None:
    inner = tmp_path / "a"
    inner.mkdir()
    (inner / PYPROJECT).write_bytes(text)
    (tmp_path / FILE).write_text("steps = 1")
    assert load(inner).source == tmp_path / FILE


def test_an_explicit_file_is_read_from_where_the_user_stands(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("steps = 1")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci" / "fast.toml").write_text("steps = 5")
    config = load(tmp_path, Path("ci/fast.toml"))
    assert (config.steps, config.runs) == (5, tmp_path / ".perfdoctor" / "runs")


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_an_explicit_file_that_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(PerfdoctorError, match="no configuration file") as caught:
        load(tmp_path, Path(name))
    assert caught.value.slug == "config-not-found"


def test_an_explicit_pyproject_needs_the_section(tmp_path: Path) -> None:
    (tmp_path / PYPROJECT).write_text("[project]\nname = 'x'")
    with pytest.raises(PerfdoctorError, match=r"\[tool.perfdoctor\]") as caught:
        load(tmp_path, tmp_path / PYPROJECT)
    assert caught.value.slug == "config-no-section"


def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / FILE).touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PerfdoctorError, match="cannot be read: Permission denied") as caught:
        load(tmp_path)
    assert caught.value.slug == "config-unreadable"


# ---------------------------------------------------------------------------------------------------------
# Values

FULL = """
select = ["PD03", "PD04"]
extend-select = ["ACME"]
ignore = ["PD03.too-few-workers"]
fail-on = "warning"
steps = 50
seconds = 7
patience = 1.5
runs = "out/runs"
upload-every = 5

[{0}rules.PD03]
level = "note"
min-share = 0.2
[{0}rules.PD04]
full-collections = 3

[[{0}suppress]]
code = "PD04.explicit-collect"
where = "train.py::evaluate"
reason = "memory is short"
expires = 2030-12-31
[[{0}suppress]]
code = "PD13"
reason = "not ours"
"""


@pytest.mark.parametrize(
    ("name", "header", "prefix"), [(FILE, "", ""), (PYPROJECT, "[tool.perfdoctor]", "tool.perfdoctor.")]
)
def test_every_key_is_read_from_either_file(tmp_path: Path, name: str, header: str, prefix: str) -> None:
    source = tmp_path / name
    assert written(tmp_path, header + FULL.format(prefix), name) == Config(
        selections=(Selection(("PD03", "PD04"), ("ACME",), ("PD03.too-few-workers",), source),),
        fail_on="warning",
        steps=50,
        seconds=7.0,
        patience_s=1.5,
        runs=tmp_path / "out" / "runs",
        upload_every_s=5.0,
        rules=(Rule("PD03", "note", {"min-share": 0.2}), Rule("PD04", None, {"full-collections": 3})),
        suppressions=(
            Suppression(
                "PD04.explicit-collect",
                "memory is short",
                "train.py::evaluate",
                date(2030, 12, 31),
                f"suppress[1] in {name}",
            ),
            Suppression("PD13", "not ours", origin=f"suppress[2] in {name}"),
        ),
        source=source,
    )


def test_runs_of_a_file_found_above_lie_beside_that_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("steps = 1")
    (tmp_path / "a").mkdir()
    assert load(tmp_path / "a").runs == tmp_path / ".perfdoctor" / "runs"


def test_an_absolute_directory_and_a_home_directory_stay_what_they_are(tmp_path: Path) -> None:
    assert written(tmp_path, "runs = '/scratch/runs'").runs == Path("/scratch/runs")
    assert written(tmp_path, "runs = '~/runs'").runs == Path.home() / "runs"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xef\xbb\xbfsteps = 3")
    assert load(tmp_path).steps == 3


# ---------------------------------------------------------------------------------------------------------
# Mistakes


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("step = 3", "`step`", "`steps`"),
        ("fail_on = 'never'", "`fail_on`", "`fail-on`"),
        ("extend-selects = []", "`extend-selects`", "`extend-select`"),
        ("Steps = 3", "`Steps`", "`steps`"),
        ("[rule.PD03]", "`rule`", "`rules`"),
        ("[[suppress]]\ncode='PD03'\nreason='x'\nexpiry=2030-01-01", "`suppress[1].expiry`", "`expires`"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_valid_one(tmp_path: Path, text: str, key: str, nearest: str) -> None:
    error = _error(tmp_path, text)
    assert error.slug == "config-unknown-key"
    assert key in error.message
    assert f"did you mean {nearest}?" in error.message


def test_an_unknown_key_that_is_like_none_lists_them_all(tmp_path: Path) -> None:
    error = _error(tmp_path, "xyzzy = 1")
    assert "did you mean" not in error.message
    assert all(key in error.advice for key in TOP_KEYS)


@pytest.mark.parametrize(
    ("text", "key", "expected", "found"),
    [
        ("steps = '3'", "`steps`", "a whole number, 1 or more", 'the string "3"'),
        ("steps = 0", "`steps`", "a whole number, 1 or more", "the whole number 0"),
        ("steps = 3.0", "`steps`", "a whole number, 1 or more", "the number 3.0"),
        ("steps = true", "`steps`", "a whole number, 1 or more", "true"),
        ("seconds = 0", "`seconds`", "a number above 0", "the whole number 0"),
        ("seconds = inf", "`seconds`", "a number above 0", "the number inf"),
        ("seconds = nan", "`seconds`", "a number above 0", "the number nan"),
        (f"seconds = 1{'0' * 400}", "`seconds`", "a number above 0", "many digits"),
        ("patience = -1.5", "`patience`", "a number above 0", "the number -1.5"),
        ("fail-on = 'note'", "`fail-on`", '"error" or "warning" or "never"', 'the string "note"'),
        ("fail-on = []", "`fail-on`", '"error" or "warning" or "never"', "a list"),
        ("select = 'PD'", "`select`", "a list of strings", 'the string "PD"'),
        ("ignore = [3]", "`ignore`", "a list of strings", "a list"),
        ("runs = ''", "`runs`", "not empty", "an empty string"),
        ("runs = 2030-01-01", "`runs`", "a string", "the date 2030-01-01"),
        ("rules = 3", "`rules`", "a table, [rules]", "the whole number 3"),
        ("rules.PD03 = 3", "`rules.PD03`", "a table, [rules.PD03]", "the whole number 3"),
        ("rules.PD03.level = 'bad'", "`rules.PD03.level`", '"off"', 'the string "bad"'),
        ("rules.PD03.min-share = [1]", "`rules.PD03.min-share`", "a number", "a list"),
        ("rules.PD03.too-few-workers.x = 1", "`rules.PD03.too-few-workers`", "a number", "a table"),
        ("[suppress]\ncode = 'PD03'", "`suppress`", "[[suppress]]", "a table"),
        ("suppress = [1]", "`suppress`", "[[suppress]]", "a list"),
        ("[[suppress]]\ncode='PD03'\nreason=' '", "`suppress[1].reason`", "not empty", 'the string " "'),
        ("[[suppress]]\ncode=3\nreason='x'", "`suppress[1].code`", "a string", "the whole number 3"),
        (
            "[[suppress]]\ncode='PD03'\nreason='x'\nexpires='2030-01-01'",
            "`suppress[1].expires`",
            "a date",
            "the string",
        ),
        (
            "[[suppress]]\ncode='P'\nreason='x'\nexpires=2030-01-01T10:00:00",
            "`suppress[1].expires`",
            "a date",
            "and time",
        ),
        ("[[suppress]]\ncode='PD03'\nreason='x'\nwhere='t.py:41'", "`suppress[1].where`", "t", 'the string "t.py:41"'),
        (
            "[[suppress]]\ncode='PD03'\nreason='x'\nwhere='::main'",
            "`suppress[1].where`",
            "train.py::function",
            "::main",
        ),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(
    tmp_path: Path, text: str, key: str, expected: str, found: str
) -> None:
    error = _error(tmp_path, text)
    assert error.slug == "config-wrong-value"
    said, _, wanted = error.message.partition("; expected ")
    assert key in said
    assert found in said
    assert expected in wanted


@pytest.mark.parametrize("missing", ["code", "reason"])
def test_a_suppression_needs_a_code_and_a_reason(tmp_path: Path, missing: str) -> None:
    given = {"code": "code = 'PD03'", "reason": "reason = 'x'"}
    del given[missing]
    error = _error(tmp_path, "[[suppress]]\n" + "\n".join(given.values()))
    assert error.slug == "config-missing-key"
    assert f"`suppress[1].{missing}`" in error.message


def test_a_key_of_pyproject_is_named_from_the_top(tmp_path: Path) -> None:
    assert "`tool.perfdoctor.step`" in _error(tmp_path, "[tool.perfdoctor]\nstep = 3", PYPROJECT).message
    assert "`tool.perfdoctor`" in _error(tmp_path, "tool.perfdoctor = 3", PYPROJECT).message
    assert "[[tool.perfdoctor.suppress]]" in _error(tmp_path, "tool.perfdoctor.suppress = 3", PYPROJECT).message


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (b"steps = 3\nselect = [PD]\n", 2, 11),
        (b"steps = 3\nsteps = 4\n", 2, 10),
        (b"steps =", 1, 8),
        (b"steps = " + b"1" * 5000, 1, 1),
        (b"steps = " + b"[" * 5000, 1, 1),
        (b"steps = 3\nselect = ['PD'\n", 3, 1),
        (b"steps = 3\nruns = 'a\xff'", 2, 10),
    ],
)
def test_a_syntax_error_names_line_and_column(tmp_path: Path, text: bytes, line: int, column: int) -> None:
    (tmp_path / FILE).write_bytes(text)
    with pytest.raises(PerfdoctorError) as caught:
        load(tmp_path)
    assert caught.value.slug == "config-syntax"
    assert caught.value.message.startswith(f"{tmp_path / FILE}, line {line}, column {column}: ")


# ---------------------------------------------------------------------------------------------------------
# Recordings in storage


def test_runs_takes_a_url(tmp_path: Path) -> None:
    config = written(tmp_path, 'runs = "s3://bucket/runs"')
    assert config.storage == "s3://bucket/runs"
    # Nothing of a job goes there, but notebooks and worktrees do.
    assert config.runs == tmp_path / ".perfdoctor" / "runs"


def test_the_command_line_overrules_a_url_by_a_directory_and_the_other_way_round(tmp_path: Path) -> None:
    config = written(tmp_path, 'runs = "s3://bucket/runs"')
    local = config.merged(runs="elsewhere")
    assert (local.storage, local.runs) == ("", Path("elsewhere"))
    assert local.merged(runs="gs://other").storage == "gs://other"
