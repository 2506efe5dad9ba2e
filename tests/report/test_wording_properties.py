"""What holds for every number and every text, whatever a run brings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace

import diagnosis_samples as samples
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perfdoctor.diagnosis.findings import Measurement
from perfdoctor.report import wording

# A machine that is busy with other tests is no reason to fail.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

EXPONENT = re.compile(r"\d[eE][-+]?\d")
ONE_NUMBER = re.compile(r"-?<?\d[\d,.]*")

MEASURED = st.floats(min_value=0, max_value=1e12, allow_nan=False)
"""Milliseconds, bytes, counts: nothing that a run measures lies beyond, in any unit."""
SIGNED = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)
ORDERED = st.tuples(MEASURED, MEASURED).map(sorted)
FORMATS: dict[str, Callable[[float], str]] = {
    "duration": wording.duration,
    "share": wording.share,
    "count": wording.count,
    "ratio": wording.ratio,
    "size": wording.size,
    "flops": wording.flops,
    "cores": wording.cores,
    "rate": wording.rate,
    "plain_ms": wording.plain_ms,
    "plain_number": wording.plain_number,
}


@pytest.mark.parametrize("name", FORMATS)
@given(value=SIGNED)
@example(value=0.0)
@example(value=-0.0)
@example(value=5e-324)
@example(value=999.9999999)
def test_a_number_is_short_and_has_no_exponent(name: str, value: float) -> None:
    text = FORMATS[name](value)
    assert 0 < len(text) <= 24
    assert not EXPONENT.search(text)
    assert ONE_NUMBER.match(text)


@pytest.mark.parametrize("unit", ["ms", "us", "s", "share", "count", "bytes", "bytes/s", "ratio", "flops"])
@given(value=st.floats())
def test_every_float_has_words_in_every_unit(unit: str, value: float) -> None:
    text = wording.quantity(Measurement("x", value, unit))  # type: ignore[arg-type]
    assert text
    assert (text == "unknown") == (not abs(value) < 1e18)
    assert len(text) <= 40 and not EXPONENT.search(text)


def seconds_of(text: str) -> float:
    """A duration read back."""
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    words = text.replace(",", "").split()
    return sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


@given(ORDERED)
def test_a_longer_time_never_reads_shorter(times: list[float]) -> None:
    low, high = (seconds_of(wording.duration(ms)) for ms in times)
    assert low <= high * (1 + 1e-12)


@given(MEASURED.filter(lambda ms: ms >= 1e-5))
def test_a_duration_is_read_back(ms: float) -> None:
    assert seconds_of(wording.duration(ms)) * 1000 == pytest.approx(ms, rel=0.01, abs=0.006 if ms >= 0.1 else 6e-6)


@given(st.tuples(*[st.floats(0, 100)] * 2).map(sorted))
def test_a_larger_share_never_reads_smaller(shares: tuple[float, float]) -> None:
    low, high = (float(wording.share(s).strip("<% ").replace(",", "")) for s in shares)
    assert low <= high or (low, high) == (0.1, 0.1)


@given(ORDERED, st.integers(2, 3))
def test_a_span_names_its_ends_in_order(times: list[float], digits: int) -> None:
    text = wording.span(*times, digits)
    assert not EXPONENT.search(text)
    if " to " in text and not text.startswith("up to") and times[1] < 60_000:
        low, high = text.rpartition(" ")[0].split(" to ")
        assert float(low.replace(",", "")) < float(high.replace(",", ""))


@given(ORDERED, MEASURED)
def test_a_speed_up_is_said_in_one_way(saved: list[float], rest: float) -> None:
    low, high = saved
    text = wording.speed_up(low, high, high + rest + 1e-9)
    number, most = r"\d+(\.\d+)?x", "more than 100x"
    assert re.fullmatch(
        rf"speed-up (less than 1\.01x|(up to |at least )?({most}|{number})|{number} to ({number}|{most}))", text
    )


@given(st.text(st.characters(codec=None)))
def test_cleaned_text_has_nothing_that_moves_a_cursor(text: str) -> None:
    cleaned = wording.clean(text)
    assert not [c for c in cleaned if c not in "\n\t" and unicodedata.category(c) == "Cc"]
    assert not set(cleaned) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    cleaned.encode("utf-8")
    assert wording.clean(cleaned) == cleaned


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs"))))
def test_text_without_control_characters_stays_as_it_is(text: str) -> None:
    assert wording.clean(text) == text


@given(st.text())
def test_a_template_of_doubled_braces_gives_the_text_back(text: str) -> None:
    assert wording.fill(text.replace("{", "{{").replace("}", "}}"), ()) == text


@given(st.text().filter(lambda text: "{" not in text and "}" not in text))
def test_a_worded_finding_is_clean_whatever_the_check_says(text: str) -> None:
    finding = wording.filled(replace(samples.WORKERS, message=text, rank_note=text))
    assert finding.message == finding.rank_note == wording.clean(text)
