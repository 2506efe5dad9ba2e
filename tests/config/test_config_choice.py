"""Which checks run: the file's choice, and the command line's over it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from written_config import written

from perfdoctor.config.files import FILE
from perfdoctor.config.rules import Rule
from perfdoctor.config.settings import Config, Selection, is_selected, require_known_codes
from perfdoctor.errors import PerfdoctorError

KNOWN = ("PD03", "PD04", "PD07", "PD13", "ACME01")


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
    config = written(
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
    config = written(tmp_path, text)
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
        ({"steps": 0}, "invalid --steps: 0; expected a whole number, 1 or more"),
        ({"seconds": float("nan")}, "invalid --seconds: nan; expected a number above 0"),
        ({"patience": -1.0}, "invalid --patience: -1.0; expected a number above 0"),
    ],
)
def test_an_option_out_of_range_is_named(option: dict[str, float], error: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        Config().merged(**option)  # type: ignore[arg-type]
    assert caught.value.message.startswith(error)


def test_an_unknown_word_for_fail_on_is_named() -> None:
    with pytest.raises(PerfdoctorError, match='invalid --fail-on: errors; expected "error" or'):
        Config().merged(fail_on="errors")


CODES = {"etl": "PD03", "data-loading": "PD03", "gc": "PD04"}


def test_a_check_goes_by_any_of_its_names(tmp_path: Path) -> None:
    text = (
        "select=['data-loading']\nignore=['etl.slow-storage']\n[rules.data-loading]\nlevel='note'\n"
        "[[suppress]]\ncode='gc.x'\nreason='y'\n[assert]\ngc='warn'"
    )
    config = written(tmp_path, text).merged(ignore=["gc"]).with_codes(CODES)
    require_known_codes(config, KNOWN)
    assert config.selections[0].select == ("PD03",)
    assert config.selections[0].ignore == ("PD03.slow-storage",)
    assert config.selections[1].ignore == ("PD04",)
    assert config.rule("PD03").level == "note"
    assert config.suppressions[0].code == "PD04.x"
    assert config.budgets[0].name == "PD04"


def test_a_mistake_in_the_table_of_a_name_is_shown_as_it_was_written(tmp_path: Path) -> None:
    rule = written(tmp_path, "[rules.data-loading]\nx=1").with_codes(CODES).rule("PD03")
    assert (rule.code, rule.key) == ("PD03", "data-loading")
