"""The annotated samples: they hold the defaults, their examples are valid, and no key is left out."""

from __future__ import annotations

import dataclasses
import re
from datetime import date
from pathlib import Path

import pytest
from written_config import written

from perfdoctor.config.decoding import keys
from perfdoctor.config.files import FILE, PYPROJECT, TOP_KEYS, load
from perfdoctor.config.gate import GateSettings
from perfdoctor.config.settings import require_known_codes
from perfdoctor.config.suppressions import Suppression

SAMPLES = Path(__file__).parent.parent.parent / "sample_configs"
KNOWN = ("PD03", "PD04", "PD07", "PD13", "ACME01")


def _uncommented(text: str) -> str:
    """The sample with its examples, which stand behind a `#` without a space."""
    return re.sub(r"^#(?=[\w\[])", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("sample", "name"), [("perfdoctor.toml", FILE), ("pyproject-section.toml", PYPROJECT)])
def test_a_sample_holds_the_defaults(tmp_path: Path, sample: str, name: str) -> None:
    defaults = load(tmp_path)
    config = written(tmp_path, (SAMPLES / sample).read_text(), name)
    (selection,) = config.selections
    assert (
        dataclasses.replace(config, source=None, selections=(dataclasses.replace(selection, source=None),)) == defaults
    )


@pytest.mark.parametrize(("sample", "name"), [("perfdoctor.toml", FILE), ("pyproject-section.toml", PYPROJECT)])
def test_the_examples_in_a_sample_are_valid(tmp_path: Path, sample: str, name: str) -> None:
    config = written(tmp_path, _uncommented((SAMPLES / sample).read_text()), name)
    require_known_codes(config, KNOWN)
    assert config.rule("PD03").level == "warning"
    assert config.suppressions[0].expires == date(2030, 12, 31)


def test_the_annotated_sample_shows_every_key() -> None:
    text = _uncommented((SAMPLES / "perfdoctor.toml").read_text())
    for key in (*TOP_KEYS, *keys(Suppression), *keys(GateSettings), "level"):
        assert re.search(rf"^(\[+|\[gate\.)?{key}( = |\.PD03\]|\]\]?)", text, re.MULTILINE), key
