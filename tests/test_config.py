from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from perfdoctor.config import (
    FILE,
    PYPROJECT,
    SUPPRESS_KEYS,
    TOP_KEYS,
    Config,
    Rule,
    Selection,
    apply_limits,
    is_selected,
    load,
    require_known_codes,
)
from perfdoctor.config_gate import GATE_KEYS
from perfdoctor.config_table import LimitValue
from perfdoctor.diagnosis.findings import Check, clear
from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.suppression import Suppression

SAMPLES = Path(__file__).parent.parent / "sample_configs"
KNOWN = ("PD03", "PD04", "PD07", "PD13", "ACME01")


@pytest.fixture(autouse=True)
def _no_file_above(tmp_path: Path) -> Iterator[None]:
    """Nobody else's configuration decides a test."""
    assert load(tmp_path).source is None
    yield


def _load(tmp_path: Path, text: str, name: str = FILE) -> Config:
    (tmp_path / name).write_text(text)
    return load(tmp_path)


def _error(tmp_path: Path, text: str, name: str = FILE) -> PerfdoctorError:
    with pytest.raises(PerfdoctorError) as caught:
        _load(tmp_path, text, name)
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
    assert (config.steps, config.seconds, config.source) == (2, 60.0, tmp_path / "a" / PYPROJECT)


def test_perfdoctor_toml_wins_in_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / PYPROJECT).write_text("[tool.perfdoctor]\nsteps = 2")
    assert _load(tmp_path, "steps = 1").steps == 1


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
    assert _load(tmp_path, header + FULL.format(prefix), name) == Config(
        selections=(Selection(("PD03", "PD04"), ("ACME",), ("PD03.too-few-workers",), source),),
        fail_on="warning",
        steps=50,
        seconds=7.0,
        patience_s=1.5,
        runs=tmp_path / "out" / "runs",
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
    assert _load(tmp_path, "runs = '/scratch/runs'").runs == Path("/scratch/runs")
    assert _load(tmp_path, "runs = '~/runs'").runs == Path.home() / "runs"


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
    assert f"the nearest is {nearest}" in error.message


def test_an_unknown_key_that_is_like_none_lists_them_all(tmp_path: Path) -> None:
    error = _error(tmp_path, "xyzzy = 1")
    assert "nearest" not in error.message
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
# Choosing checks


def _choice(
    select: tuple[str, ...] = ("PD",), ignore: tuple[str, ...] = (), extend_select: tuple[str, ...] = ()
) -> Config:
    return Config(selections=(Selection(select, extend_select, ignore),))


@pytest.mark.parametrize(
    ("config", "code", "selected"),
    [
        (Config(), "PD03", True),
        (Config(), "PD03.too-few-workers", True),
        (Config(), "ACME01", False),
        (_choice(select=()), "PD03", False),
        (_choice(extend_select=("ACME",)), "ACME01", True),
        (_choice(select=("PD03",)), "PD04", False),
        (_choice(select=("PD0",)), "PD04", True),
        (_choice(select=("PD0",)), "PD13", False),
        (_choice(ignore=("PD03",)), "PD03", False),
        (_choice(select=("PD03",), ignore=("PD",)), "PD03", True),
        (_choice(select=("PD03",), ignore=("PD03",)), "PD03", False),
        (_choice(ignore=("PD0",), extend_select=("PD03",)), "PD03", True),
        (_choice(ignore=("PD03.too-few-workers",)), "PD03.too-few-workers", False),
        (_choice(ignore=("PD03.too-few-workers",)), "PD03.slow-storage", True),
        (_choice(ignore=("PD03.too-few-workers",)), "PD03", True),
        (_choice(ignore=("PD03.too-few",)), "PD03.too-few-workers", True),
        (_choice(select=("PD03.too-few-workers",)), "PD03", True),
        (_choice(select=("PD03.too-few-workers",)), "PD03.slow-storage", False),
        (_choice(ignore=("PD03",), extend_select=("PD03.slow-storage",)), "PD03", True),
        (_choice(ignore=("PD03",), extend_select=("PD03.slow-storage",)), "PD03.slow-storage", True),
        (Config(rules=(Rule("PD03", "off"),)), "PD03", False),
        (Config(rules=(Rule("PD03", "off"),)), "PD03.too-few-workers", False),
        (Config(rules=(Rule("PD03", "note"),)), "PD03", True),
    ],
)
def test_the_longest_prefix_wins_and_ignore_wins_a_tie(config: Config, code: str, selected: bool) -> None:
    assert is_selected(code, config) is selected


@pytest.mark.parametrize(
    ("select", "ignore", "extend_select", "selected"),
    [
        (None, (), (), ("PD03",)),
        (None, ("PD",), (), ()),
        (None, (), ("PD04",), ("PD03", "PD04")),
        (None, ("PD03",), ("ACME",), ("ACME01",)),
        (("PD",), (), (), ("PD03", "PD04", "PD07", "PD13")),
        (("PD0",), ("PD07",), ("ACME01",), ("PD03", "PD04", "ACME01")),
        (("PD03, PD04",), ("PD04,PD07",), (), ("PD03",)),
        ((), (), (), ("PD03",)),
        (("",), (), (), ()),
    ],
)
def test_the_command_line_overrules_the_file(
    select: tuple[str, ...] | None, ignore: tuple[str, ...], extend_select: tuple[str, ...], selected: tuple[str, ...]
) -> None:
    file = _choice(select=("PD03", "PD04"), ignore=("PD04", "PD13"))
    merged = file.merged(select=select, ignore=ignore, extend_select=extend_select)
    assert tuple(code for code in KNOWN if is_selected(code, merged)) == selected


def test_codes_that_exist_pass(tmp_path: Path) -> None:
    config = _load(
        tmp_path,
        "select=['PD','ACME01','PD03.x']\nignore=['PD0']\n[rules.PD03]\n[[suppress]]\ncode='PD04.x'\nreason='y'",
    )
    require_known_codes(config.merged(select=["PD1", "ACME"]), KNOWN)


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("select = ['PD3']", "`select`", "`PD03`"),
        ("select = ['PD03.']", "`select`", "`PD03`"),
        ("select = ['']", "`select`", ""),
        ("ignore = ['pd03']", "`ignore`", "`PD03`"),
        ("ignore = ['PD.too-few-workers']", "`ignore`", "`PD"),
        ("extend-select = ['ACNE01']", "`extend-select`", "`ACME01`"),
        ("[rules.PD033]", "`rules`", "`PD03`"),
        ("[[suppress]]\ncode = 'PD3.x'\nreason = 'y'", "`suppress[1].code`", "`PD03`"),
        ("[[suppress]]\ncode = 'PD'\nreason = 'y'", "`suppress[1].code`", "`PD"),
    ],
)
def test_an_unknown_code_is_named_with_the_nearest_known_one(tmp_path: Path, text: str, key: str, nearest: str) -> None:
    config = _load(tmp_path, text)
    with pytest.raises(PerfdoctorError) as caught:
        require_known_codes(config, KNOWN)
    assert caught.value.slug == "config-unknown-code"
    assert key in caught.value.message
    assert str(tmp_path / FILE) in caught.value.message
    assert nearest in caught.value.message
    assert all(code in caught.value.advice for code in KNOWN)


def test_an_unknown_code_on_the_command_line_names_the_option() -> None:
    with pytest.raises(PerfdoctorError, match=r"^`--ignore` names the check `PD99`"):
        require_known_codes(Config().merged(ignore=["PD99"]), KNOWN)


# ---------------------------------------------------------------------------------------------------------
# The command line


def test_options_lie_over_the_file_and_leave_the_rest() -> None:
    file = Config(fail_on="warning", steps=5, seconds=5.0, patience_s=5.0)
    assert file.merged() == file
    assert file.merged(steps=7) == dataclasses.replace(file, steps=7)
    assert file.merged(fail_on="never", seconds=1, patience=2.5, runs=Path("x")) == dataclasses.replace(
        file, fail_on="never", seconds=1.0, patience_s=2.5, runs=Path("x")
    )


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"steps": 0}, "`--steps` is the whole number 0"),
        ({"seconds": float("nan")}, "`--seconds` is the number nan"),
        ({"patience": -1.0}, "`--patience` is the number -1.0"),
    ],
)
def test_an_option_out_of_range_is_named(option: dict[str, float], error: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        Config().merged(**option)  # type: ignore[arg-type]
    assert caught.value.message.startswith(error)


def test_an_unknown_word_for_fail_on_is_named() -> None:
    with pytest.raises(PerfdoctorError, match='`--fail-on` is the string "errors"; expected "error" or'):
        Config().merged(fail_on="errors")


# ---------------------------------------------------------------------------------------------------------
# Thresholds


@dataclass(frozen=True, slots=True)
class Limits:
    min_share: float = 0.05
    full_collections: int = 1
    count_idle: bool = True
    policy: str = "strict"
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.min_share > 1:
            raise ValueError("min-share is a share, at most 1")


CHECK = Check("PD03", "etl", "Input", Limits(), lambda _evidence, _limits: clear("fine"))


def test_thresholds_are_set_by_their_kebab_names() -> None:
    overrides: dict[str, LimitValue] = {"min-share": 1, "full-collections": 3, "count-idle": False, "policy": "lax"}
    limits = apply_limits(CHECK, overrides, None)
    assert limits == Limits(1.0, 3, False, "lax")
    assert type(limits.min_share) is float


def test_without_thresholds_the_check_keeps_its_own() -> None:
    assert apply_limits(CHECK, {}, None) == Limits()


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("min-share", "0.1", "a number"),
        ("min-share", True, "a number"),
        ("min-share", float("nan"), "a number"),
        ("full-collections", 1.5, "a whole number"),
        ("full-collections", True, "a whole number"),
        ("count-idle", 1, "true or false"),
        ("policy", 3, "a string"),
        ("policy", "", "not empty"),
        ("kinds", "x", "cannot be set"),
    ],
)
def test_a_threshold_of_the_wrong_type_is_an_error(key: str, value: LimitValue, expected: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        apply_limits(CHECK, {key: value}, Path("perfdoctor.toml"))
    assert caught.value.message.startswith(f"`rules.PD03.{key}` in perfdoctor.toml is ")
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("key", "nearest"), [("min-shares", "min-share"), ("min_share", "min-share"), ("lvl", "level")]
)
def test_an_unknown_threshold_is_named_with_the_nearest_one(key: str, nearest: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        apply_limits(CHECK, {key: 1}, Path("perfdoctor.toml"))
    assert caught.value.slug == "config-unknown-key"
    assert f"`rules.PD03.{key}` in perfdoctor.toml" in caught.value.message
    assert f"the nearest is `{nearest}`" in caught.value.message


def test_a_threshold_that_the_check_itself_refuses_is_a_usage_error() -> None:
    with pytest.raises(PerfdoctorError, match=r"`rules.PD03` in perfdoctor.toml: min-share is a share") as caught:
        apply_limits(CHECK, {"min-share": 2.0}, Path("perfdoctor.toml"))
    assert caught.value.slug == "config-bad-threshold"


# ---------------------------------------------------------------------------------------------------------
# The samples


def _uncommented(text: str) -> str:
    """The sample with its examples, which stand behind a `#` without a space."""
    return re.sub(r"^#(?=[\w\[])", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("sample", "name"), [("perfdoctor.toml", FILE), ("pyproject-section.toml", PYPROJECT)])
def test_a_sample_holds_the_defaults(tmp_path: Path, sample: str, name: str) -> None:
    defaults = load(tmp_path)
    config = _load(tmp_path, (SAMPLES / sample).read_text(), name)
    (selection,) = config.selections
    assert (
        dataclasses.replace(config, source=None, selections=(dataclasses.replace(selection, source=None),)) == defaults
    )


@pytest.mark.parametrize(("sample", "name"), [("perfdoctor.toml", FILE), ("pyproject-section.toml", PYPROJECT)])
def test_the_examples_in_a_sample_are_valid(tmp_path: Path, sample: str, name: str) -> None:
    config = _load(tmp_path, _uncommented((SAMPLES / sample).read_text()), name)
    require_known_codes(config, KNOWN)
    assert config.rule("PD03").level == "warning"
    assert config.suppressions[0].expires == date(2030, 12, 31)


def test_the_annotated_sample_shows_every_key() -> None:
    text = _uncommented((SAMPLES / "perfdoctor.toml").read_text())
    for key in (*TOP_KEYS, *SUPPRESS_KEYS, *GATE_KEYS, "level"):
        assert re.search(rf"^(\[+|\[gate\.)?{key}( = |\.PD03\]|\]\]?)", text, re.MULTILINE), key
