"""Numbers as words: the only place that formats a number for a person.

Measurements get three significant digits, predictions two: a prediction that says "12.37 ms" claims more than
it knows. Every sentence that a check writes is a template whose `{name}` placeholders name its measurements; with
`{reads:scalar read}` or `{files:file is|files are}` the number gets its noun: "1 scalar read", "2 files are".
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..diagnosis.diagnoses import IntegrityNote
from ..diagnosis.findings import Finding, Measurement, Savings

MEASURED_DIGITS = 3
PREDICTED_DIGITS = 2

CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
"""Code in a sentence, as Markdown writes it; the second group is the code."""
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)(?::([^{}|]+)(?:\|([^{}|]+))?)?\}|[{}]")
_SIBILANTS = ("s", "x", "ch", "sh")
"""Nouns that end so make their plural with es: batch, fix, process."""
_BESIDE_OTHERS = "beyond what the other fixes save"
_LARGEST = 1e18
"""Nothing that a run can measure is larger, in any unit: what is, is infinite or went wrong."""
_WORTH_TELLING = 0.1
"""Of a finding's time, claimed by others as well, from which on a reader would wonder at the numbers."""
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


# ---------------------------------------------------------------------------------------------------------
# Text


def clean(text: str) -> str:
    """Text from outside, safe to print: no escape sequences, no control characters but newline and tab."""
    text = _ESCAPE_SEQUENCE.sub("", text).encode("utf-8", "replace").decode("utf-8")
    return "".join(c for c in text if c in "\n\t" or (unicodedata.category(c) != "Cc" and c not in _BIDI_CONTROLS))


def fill(template: str, measurements: Iterable[Measurement]) -> str:
    """The template with each `{name}` replaced by that measurement; `{{` and `}}` are literal braces.

    `{name:noun}` adds the noun, in the plural unless the number reads "1"; `{name:one|many}` gives both words.

    Raises ValueError for a name that no measurement has and for a single brace.
    """
    by_name = {measurement.name: measurement for measurement in measurements}

    def number(match: re.Match[str]) -> str:
        token, (name, one, many) = match.group(0), match.groups(default="")
        if token in ("{{", "}}"):
            return token[0]
        if not name:
            raise ValueError(f"single {token!r} in {template!r}: write {token * 2!r} for a literal brace")
        if name not in by_name:
            known = ", ".join(sorted(by_name)) or "none"
            raise ValueError(f"no measurement named {name!r} for {template!r}; there are: {known}")
        text = quantity(by_name[name])
        return _with_noun(text, one, many) if one else text

    return _PLACEHOLDER.sub(number, template)


def fill_reason(text: str, measurements: tuple[Measurement, ...]) -> str:
    """A reason, which is a template only where it has measurements.

    Without any it may quote an exception or a file name, braces and all.
    """
    return fill(text, measurements) if measurements else text


def noted(note: IntegrityNote) -> str:
    """Its message, with its numbers."""
    return sentence(clean(fill_reason(note.message, note.measurements)))


def filled(finding: Finding) -> Finding:
    """The finding with the numbers in all its sentences, and without control characters in them."""

    def words(template: str) -> str:
        return clean(fill(template, finding.evidence))

    fix, savings = finding.fix, finding.savings
    return replace(
        finding,
        message=words(finding.message),
        reasoning=words(finding.reasoning),
        fix=replace(fix, text=words(fix.text), code=words(fix.code), risk=words(fix.risk)),
        savings=replace(savings, method=words(savings.method)),
        rank_note=clean(finding.rank_note),
        about=clean(finding.about),
    )


def placeholders(template: str) -> frozenset[str]:
    """The names that a template uses."""
    return frozenset(name for match in _PLACEHOLDER.finditer(template) if (name := match.group(1)))


def label(measurement: Measurement) -> str:
    """What to call a measurement: its label, or its name in words without the unit."""
    if measurement.label:
        return measurement.label
    name = measurement.name
    if measurement.unit in ("ms", "us", "s", "bytes") and not name.endswith(f"_per_{measurement.unit}"):
        name = name.removesuffix(f"_{measurement.unit}")
    return name.replace("_", " ")


def plural(number: float, one: str, many: str = "") -> str:
    """The number and its noun: "1 step", "2 fixes"; `many` where the plural is not formed with an s or es."""
    return _with_noun(count(number), one, many)


def _with_noun(number: str, one: str, many: str) -> str:
    """By the number as it is read: 0.9996 operators are "1 operator"."""
    if number == "1":
        return f"{number} {one}"
    return f"{number} {many or one + ('es' if one.endswith(_SIBILANTS) else 's')}"


def listing(items: Iterable[str]) -> str:
    """The items in a sentence: "a, b and c"."""
    *head, last = list(items) or [""]
    return f"{', '.join(head)} and {last}" if head else last


def sentence(text: str) -> str:
    """With a capital first letter, unless it begins with a name such as `num_workers`, and a full stop."""
    text = text.strip()
    if not text:
        return ""
    start = text[0].upper() if text.split(maxsplit=1)[0].rstrip(",:").isalpha() else text[0]
    return start + text[1:] + ("" if text[-1] in ".!?:" else ".")


# ---------------------------------------------------------------------------------------------------------
# Numbers


def quantity(measurement: Measurement) -> str:
    """The value with its unit: "14.2 ms", "61 %", "412 MiB", "2.1x"."""
    value = measurement.value
    if isinstance(value, str) or measurement.unit == "text":
        return str(value)
    return FORMATS[measurement.unit](value) if abs(value) < _LARGEST else "unknown"


def duration(ms: float, digits: int = MEASURED_DIGITS) -> str:
    """A time in the unit that suits it: "42.0 µs", "0.42 ms", "14.2 ms", "1.30 s", "2 min 05 s"."""
    if ms < 0:
        return "-" + duration(-ms, digits)
    ms = _rounded(ms, digits)
    if ms == 0:
        return "0 ms"
    if ms >= 60_000:
        return _clock(ms)
    unit, per_unit = _time_unit(ms)
    return f"{_fixed(ms / per_unit, _decimals(ms / per_unit, digits))} {unit}"


def elapsed(seconds: float) -> str:
    """A running clock, in whole seconds so that it does not flicker: "12 s", "2 min 05 s"."""
    return f"{int(seconds)} s" if seconds < 60 else _clock(int(seconds) * 1000)


def aligned(ms: float, whole_ms: float) -> str:
    """A part of a time, in the unit and with the decimals of the whole, so that a column of parts adds up."""
    whole_ms = _rounded(whole_ms, MEASURED_DIGITS)
    unit, per_unit = _time_unit(whole_ms)
    decimals = _decimals(whole_ms / per_unit, MEASURED_DIGITS)
    text = _fixed(ms / per_unit, decimals)
    if ms > 0 and float(text.replace(",", "")) == 0:
        text = f"<{10**-decimals:.{decimals}f}"
    return f"{text} {unit}"


def share(fraction: float) -> str:
    """A fraction of 1 as per cent: "61 %", "3.4 %", "<0.1 %"."""
    percent = abs(fraction) * 100
    sign = "-" if fraction < 0 else ""
    if percent == 0:
        return "0 %"
    if percent < 0.05:
        return f"{sign}<0.1 %"
    return f"{sign}{percent:.1f} %" if percent < 9.95 else f"{sign}{round(percent):,d} %"


def count(number: float) -> str:
    """Whole numbers with thousands separators; others with three digits, trailing zeros dropped."""
    if isinstance(number, int) or (abs(number) >= 1000):
        return f"{round(number):,d}"
    return _significant(number, MEASURED_DIGITS)


def ratio(factor: float) -> str:
    """A factor with two digits: "2.1x", "12x", "0.85x"."""
    rounded = _rounded(factor, 2 if abs(factor) < 100 else 3)
    return f"{_fixed(rounded, _decimals(rounded, 2))}x"


def size(number: float) -> str:
    """Bytes in binary units: "437 B", "12.6 MiB", "1.50 GiB"."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def flops(number: float) -> str:
    """Floating-point operations in decimal units: "12.3 GFLOP"."""
    return _scaled(number, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def _scaled(number: float, base: int, units: tuple[str, ...]) -> str:
    """In the largest unit of which there is one at least."""
    if number < 0:
        return "-" + _scaled(-number, base, units)
    for power in range(len(units) - 1, 0, -1):
        scaled = _rounded(number / base**power, MEASURED_DIGITS)
        if scaled >= 1:
            return f"{_fixed(scaled, _decimals(scaled, MEASURED_DIGITS))} {units[power]}"
    return f"{number:.0f} {units[0]}"


def cores(number: float) -> str:
    """CPU use in cores kept busy: "1.0 cores", "0.03 cores"."""
    return f"{number:.1f} cores" if number >= 0.95 or number == 0 else f"{number:.2f} cores"


def rate(number: float) -> str:
    """Samples or batches per second, as in the performance line of a log: "1385.3"."""
    return f"{number:.1f}" if number >= 0.1 or number == 0 else _significant(number, 2)


def plain_ms(ms: float) -> str:
    """Milliseconds for a log line, always in ms so that a column of them compares: "23.1 ms", "0.05 ms"."""
    return f"{ms:.1f} ms" if ms >= 0.1 or ms == 0 else f"{_significant(ms, 1)} ms"


def plain_number(value: float) -> str:
    """Three digits for a machine that draws a chart: no unit, no separators, no exponent."""
    return _significant(value, MEASURED_DIGITS)


# ---------------------------------------------------------------------------------------------------------
# Ranges and predictions


def span(low_ms: float, high_ms: float, digits: int = PREDICTED_DIGITS) -> str:
    """A range of times in one unit: "12 to 14 ms", "13 ms" when both round to it, "up to 14 ms" from zero."""
    low, high = _rounded(low_ms, digits), _rounded(high_ms, digits)
    if high <= 0:
        return "0 ms"
    if high >= 60_000:
        texts = [_clock(value) if value >= 60_000 else duration(value, digits) for value in (low, high)]
        return texts[0] if texts[0] == texts[1] else f"{texts[0]} to {texts[1]}"
    unit, per_unit = _time_unit(high)
    decimals = _decimals(high / per_unit, digits)
    low_text, high_text = _fixed(low / per_unit, decimals), _fixed(high / per_unit, decimals)
    if low_text == high_text:
        return f"{high_text} {unit}"
    return f"up to {high_text} {unit}" if float(low_text) == 0 else f"{low_text} to {high_text} {unit}"


def speed_up(low_ms: float, high_ms: float, step_ms: float) -> str:
    """What saving `low_ms` to `high_ms` of a step does to the speed: "speed-up 1.4x to 1.6x"."""
    low, high = speed_ups(low_ms, high_ms, step_ms)
    return "speed-up less than 1.01x" if high < 1.005 else f"speed-up {factors(low, high)}"


def speed_ups(low_ms: float, high_ms: float, step_ms: float) -> tuple[float, float]:
    """The same as numbers, each 1000 at most."""
    return _speed_up(low_ms, step_ms), _speed_up(high_ms, step_ms)


def _speed_up(saved_ms: float, step_ms: float) -> float:
    return step_ms / max(step_ms - saved_ms, step_ms / 1000)


_TOO_WIDE = 2.5
"""Between the ends of a range: what is less certain than that is told by its lower end."""


def factors(low: float, high: float) -> str:
    """A range of speed-ups: "1.5x to 1.8x", "2.1x" when both round to it, "up to 1.1x" from nothing."""
    if low > 100:
        return "more than 100x"
    decimals = 2 if high < 1.1 else 1 if high < 10 else 0
    low_text, high_text = f"{low:.{decimals}f}x", f"{high:.{decimals}f}x" if high <= 100 else "more than 100x"
    if low_text == high_text:
        return high_text
    if is_wide(low, high) and low >= 1.05:
        return f"at least {low:.1f}x" if low < 10 else f"at least {low_text}"
    return f"up to {high_text}" if float(low_text[:-1]) <= 1 else f"{low_text} to {high_text}"


def is_wide(low: float, high: float) -> bool:
    """Whether only the lower end of such a range of speed-ups is told."""
    return high > _TOO_WIDE * low


def interval(factor: float, low: float, high: float) -> str:
    """A measured factor with its interval: "1.71x [1.66, 1.76]", "12.4x [11.8, 13.0]"."""
    decimals = 2 if factor < 9.95 else 1 if factor < 99.5 else 0
    return f"{factor:.{decimals}f}x [{low:.{decimals}f}, {high:.{decimals}f}]"


def saving(savings: Savings, step_ms: float | None) -> str:
    """What a fix is predicted to give: "speed-up 1.8x to 2.1x, saves 11 to 13 ms per step of the 14.2 ms that ..."."""
    costs_more = savings.ceiling_ms > savings.high_ms * 1.005
    return gain(savings, step_ms, f" of the {duration(savings.ceiling_ms)} that this costs" if costs_more else "")


def gain(savings: Savings, step_ms: float | None, of_what: str = "") -> str:
    """The same in short: "speed-up 1.8x to 2.1x, saves 11 to 13 ms per step"."""
    if savings.high_ms <= 0:
        return f"nothing {_BESIDE_OTHERS}" if savings.claimed > 0 else "none that this run could predict"
    text = f"saves {span(savings.low_ms, savings.high_ms)} per step{of_what}"
    if step_ms:
        text = f"{speed_up(savings.low_ms, savings.high_ms, step_ms)}, {text}"
    return f"{text}, {_BESIDE_OTHERS}" if savings.claimed >= _WORTH_TELLING else text


def cost(savings: Savings) -> str:
    """What the problem costs now, as a share of the step where that is known: "57 % of the step"."""
    if savings.ceiling_ms <= 0:
        return "counted with the others" if savings.claimed > 0 else "no predicted time"
    if savings.share > 0:
        return f"{share(savings.share)} of the step"
    return f"{duration(savings.ceiling_ms)} per step"


# ---------------------------------------------------------------------------------------------------------
# Digits


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _decimals(value: float, digits: int, at_most: int = 2) -> int:
    """Decimals that show `digits` significant digits of a value already rounded to them."""
    if value == 0:
        return 0
    return min(at_most, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}"


def _significant(value: float, digits: int) -> str:
    """So many digits without an exponent: at most nine decimals, trailing zeros dropped."""
    rounded = _rounded(value, digits)
    text = f"{rounded:.{_decimals(rounded, digits, at_most=9)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _time_unit(ms: float) -> tuple[str, float]:
    """The unit for a time and its milliseconds."""
    if ms >= 1000:
        return "s", 1000.0
    return ("ms", 1.0) if ms >= 0.1 else ("µs", 0.001)


def _clock(ms: float) -> str:
    seconds = round(ms / 1000)
    if seconds >= 3600:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 60} min {seconds % 60:02d} s"


FORMATS: dict[str, Callable[[float], str]] = {
    "ms": duration,
    "us": lambda value: duration(value / 1000),
    "s": lambda value: duration(value * 1000),
    "share": share,
    "count": count,
    "bytes": size,
    "bytes/s": lambda value: f"{size(value)}/s",
    "ratio": ratio,
    "flops": flops,
}
"""By unit."""
