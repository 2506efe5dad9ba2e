"""Whatever stands in a file: a configuration, or an error that names the file; never another exception."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perfdoctor.config import files
from perfdoctor.config.decoding import Place, keys
from perfdoctor.config.files import TOP_KEYS
from perfdoctor.config.gate import GateSettings
from perfdoctor.config.rules import apply_limits
from perfdoctor.config.settings import Config, is_selected, require_known_codes
from perfdoctor.config.suppressions import Suppression
from perfdoctor.diagnosis.registry import discover
from perfdoctor.errors import PerfdoctorError

CHECKS = [entry.check for entry in discover()]
WORDS = st.sampled_from((*TOP_KEYS, *keys(GateSettings), *keys(Suppression), "level", "max", "min", "PD03", "PD04.x"))
SCALARS = st.one_of(
    st.booleans(), st.integers(), st.floats(), st.text(), WORDS, st.sampled_from(("error", "off", "5%", "10m", "auto")),
    st.dates(), st.datetimes(), st.times(),
)  # fmt: skip
KEYS = st.one_of(WORDS, st.text(max_size=8))


def _nested(values: Any) -> Any:
    return st.one_of(st.lists(values, max_size=3), st.dictionaries(KEYS, values, max_size=4))


VALUES = st.recursive(SCALARS, _nested, max_leaves=8)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS)
@example({"suppress": [{"code": "PD04", "reason": "x", "expires": datetime(2030, 1, 1)}]})
@example({"gate": {"counter-tolerance": {"syncs": [1]}}})
@example({"assert": {"syncs": ["error", {"max": float("nan")}], "x": [], "y": [[]]}})
@example({"rules": {"PD03": {"level": []}, "PD04": time(1, 2)}})
@example({"steps": date(2030, 1, 1), "select": [{}], "runs": "~nobody-there/x"})
def test_any_table_is_a_configuration_or_an_error_that_names_the_file(document: dict[str, Any]) -> None:
    try:
        config = files.build(document, Place(Path("/x/perfdoctor.toml")), Path("/x"))
        require_known_codes(config, {check.code for check in CHECKS})
        for check in CHECKS:
            apply_limits(check, config.rule(check.code), config.source)
            assert isinstance(is_selected(check.code, config), bool)
    except PerfdoctorError as error:
        assert error.slug.startswith("config-")
        assert "/x/perfdoctor.toml" in error.message
        assert error.advice
    else:
        assert isinstance(config, Config)


@pytest.mark.parametrize("text", ["", "x", "5%", "1e3", "-0.1", "nan", "1" * 400, "９0s"])
def test_a_tolerance_in_any_words_is_a_share_or_an_error(text: str) -> None:
    try:
        config = files.build({"gate": {"tolerance": text}}, Place(Path("/x/p.toml")), Path("/x"))
    except PerfdoctorError as error:
        assert "`gate.tolerance` in /x/p.toml" in error.message
    else:
        assert 0 < config.gate.tolerance <= 1
