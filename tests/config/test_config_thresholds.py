"""`[rules.PD03]`: a check's thresholds from the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from perfdoctor.config.rules import LimitValue, Rule, apply_limits
from perfdoctor.diagnosis.outcomes import Check, clear
from perfdoctor.errors import PerfdoctorError


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
    limits = apply_limits(CHECK, Rule("PD03", None, overrides), None)
    assert limits == Limits(1.0, 3, False, "lax")
    assert type(limits.min_share) is float


def test_without_thresholds_the_check_keeps_its_own() -> None:
    assert apply_limits(CHECK, Rule("PD03"), None) == Limits()


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
        apply_limits(CHECK, Rule("PD03", None, {key: value}), Path("perfdoctor.toml"))
    assert caught.value.message.startswith(f"`rules.PD03.{key}` in perfdoctor.toml is ")
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("key", "nearest"), [("min-shares", "min-share"), ("min_share", "min-share"), ("lvl", "level")]
)
def test_an_unknown_threshold_is_named_with_the_nearest_one(key: str, nearest: str) -> None:
    with pytest.raises(PerfdoctorError) as caught:
        apply_limits(CHECK, Rule("PD03", None, {key: 1}), Path("perfdoctor.toml"))
    assert caught.value.slug == "config-unknown-key"
    assert f"`rules.PD03.{key}` in perfdoctor.toml" in caught.value.message
    assert f"did you mean `{nearest}`?" in caught.value.message


def test_a_threshold_that_the_check_itself_refuses_is_a_usage_error() -> None:
    with pytest.raises(PerfdoctorError, match=r"`rules.PD03` in perfdoctor.toml: min-share is a share") as caught:
        apply_limits(CHECK, Rule("PD03", None, {"min-share": 2.0}), Path("perfdoctor.toml"))
    assert caught.value.slug == "config-bad-threshold"
