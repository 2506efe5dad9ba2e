from __future__ import annotations

from dataclasses import replace

import diagnosis_samples as samples
import pytest

from perfdoctor.diagnosis.diagnoses import Combined, Diagnosis
from perfdoctor.diagnosis.findings import Measurement, Savings, Unit
from perfdoctor.evidence.model import Missing, Parts
from perfdoctor.report import anatomy, wording
from perfdoctor.report.verdict import verdict


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.42, "ms", "0.42 ms"),
        (14.2, "ms", "14.2 ms"),
        (142.4, "ms", "142 ms"),
        (999.7, "ms", "1.00 s"),
        (1300, "ms", "1.30 s"),
        (125_000, "ms", "2 min 05 s"),
        (7_500_000, "ms", "2 h 05 min"),
        (0.042, "ms", "42.0 µs"),
        (0, "ms", "0 ms"),
        (-3.5, "ms", "-3.50 ms"),
        (8.2, "us", "8.20 µs"),
        (0.05, "s", "50.0 ms"),
        (0.61, "share", "61 %"),
        (0.034, "share", "3.4 %"),
        (0.0996, "share", "10 %"),
        (0.0004, "share", "<0.1 %"),
        (0.0, "share", "0 %"),
        (1, "share", "100 %"),
        (437, "bytes", "437 B"),
        (412 << 20, "bytes", "412 MiB"),
        (1.5 * 2**30, "bytes", "1.50 GiB"),
        (2**20 - 1, "bytes", "1.00 MiB"),
        (3 << 20, "bytes/s", "3.00 MiB/s"),
        (2.1, "ratio", "2.1x"),
        (12.4, "ratio", "12x"),
        (0.853, "ratio", "0.85x"),
        (169_600, "count", "169,600"),
        (2.0, "count", "2"),
        (0.02, "count", "0.02"),
        (12.34, "count", "12.3"),
        (0.00123, "count", "0.00123"),
        (12.3e9, "flops", "12.3 GFLOP"),
        (950, "flops", "950 FLOP"),
        ("bf16", "text", "bf16"),
        (float("nan"), "ms", "unknown"),
        (float("inf"), "ratio", "unknown"),
    ],
)
def test_a_quantity_is_written_in_the_unit_that_suits_it(value: float | str, unit: Unit, text: str) -> None:
    assert wording.quantity(Measurement("x", value, unit)) == text


def test_a_template_gets_its_numbers_and_keeps_doubled_braces() -> None:
    numbers = (Measurement("wait_ms", 14.2, "ms"), Measurement("name", "{wait_ms}", "text"))
    assert wording.fill("{wait_ms} in {{a: {name}}}", numbers) == "14.2 ms in {a: {wait_ms}}"


@pytest.mark.parametrize(
    ("reads", "template", "text"),
    [
        (1, "{reads:scalar read}", "1 scalar read"),
        (1.0, "{reads:scalar read}", "1 scalar read"),
        (0.9996, "{reads:operator}", "1 operator"),
        (0.5, "{reads:time}", "0.5 times"),
        (0, "{reads:time}", "0 times"),
        (1200, "{reads:page fault}", "1,200 page faults"),
        (1, "{reads:thread calls|threads call} it", "1 thread calls it"),
        (3, "{reads:thread calls|threads call} it", "3 threads call it"),
        (3, "{reads:batch} {reads:class} {reads:fix}", "3 batches 3 classes 3 fixes"),
        (3, "{{reads:time}}", "{reads:time}"),
    ],
)
def test_a_count_gets_its_noun(reads: float, template: str, text: str) -> None:
    assert wording.fill(template, (Measurement("reads", reads, "count"),)) == text
    assert wording.placeholders(template) <= {"reads"}


def test_a_plural_is_that_of_the_number_as_it_is_read() -> None:
    assert [wording.plural(n, "launch") for n in (0, 1, 2)] == ["0 launches", "1 launch", "2 launches"]
    assert wording.plural(1.0, "is the same", "are the same") == "1 is the same"


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("{gone}", "gone"),
        ("{gone:one}", "gone"),
        ("{wait_ms:}", "single '{'"),
        ("a { b", "single '{'"),
        ("a } b", "single '}'"),
    ],
)
def test_a_template_that_cannot_be_filled_says_why(template: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        wording.fill(template, (Measurement("wait_ms", 14.2, "ms"),))


def test_a_reason_without_numbers_may_quote_braces() -> None:
    assert wording.fill_reason("KeyError: '{x}'", ()) == "KeyError: '{x}'"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (12.1, 13.9, "12 to 14 ms"),
        (13.1, 13.4, "13 ms"),
        (0, 14, "up to 14 ms"),
        (0.2, 12, "up to 12 ms"),
        (9, 12, "9 to 12 ms"),
        (2.2, 2.4, "2.2 to 2.4 ms"),
        (900, 1400, "0.9 to 1.4 s"),
        (0, 0, "0 ms"),
        (61_000, 125_000, "1 min 01 s to 2 min 00 s"),
    ],
)
def test_a_prediction_is_a_range_with_two_digits(low: float, high: float, text: str) -> None:
    assert wording.span(low, high) == text


@pytest.mark.parametrize(
    ("low", "high", "step", "text"),
    [
        (12.8, 15.8, 24.8, "speed-up 2.1x to 2.8x"),
        (7, 9, 24, "speed-up 1.4x to 1.6x"),
        (0, 9, 24, "speed-up up to 1.6x"),
        (0.5, 1, 24, "speed-up 1.02x to 1.04x"),
        (0, 0.01, 24, "speed-up less than 1.01x"),
        (12, 24, 24, "speed-up at least 2.0x"),
        (3, 22, 24, "speed-up at least 1.1x"),
        (23.9, 24, 24, "speed-up more than 100x"),
    ],
)
def test_a_speed_up_is_worded_from_what_is_saved(low: float, high: float, step: float, text: str) -> None:
    assert wording.speed_up(low, high, step) == text


def test_a_saving_names_the_ceiling_only_when_it_says_more() -> None:
    whole = Savings(2.4, 2.2, 2.4, 0.1, "")
    assert wording.saving(whole, 24.8) == "speed-up 1.1x, saves 2.2 to 2.4 ms per step"
    assert "of the 14.2 ms" in wording.saving(samples.WORKERS.savings, None)
    assert wording.saving(Savings(0, 0, 0, 0, ""), 24.8) == "none that this run could predict"


@pytest.mark.parametrize(
    ("left", "claimed", "saving", "cost"),
    [
        (0.0, 1.0, "nothing beyond what the other fixes save", "counted with the others"),
        (
            2.0,
            0.5,
            "speed-up 1.04x to 1.09x, saves 1.0 to 2.0 ms per step, beyond what the other fixes save",
            "8.0 % of the step",
        ),
        (2.0, 0.05, "speed-up 1.04x to 1.09x, saves 1.0 to 2.0 ms per step", "8.0 % of the step"),
    ],
)
def test_what_others_claim_as_well_is_told(left: float, claimed: float, saving: str, cost: str) -> None:
    savings = Savings(left, left / 2, left, left / 25, "", claimed=claimed)
    assert wording.saving(savings, 25.0) == saving
    assert wording.cost(savings) == cost


def test_a_label_drops_the_unit_that_the_value_shows() -> None:
    assert wording.label(Measurement("wait_ms", 1, "ms")) == "wait"
    assert wording.label(Measurement("num_workers", 1, "count")) == "num workers"
    assert wording.label(Measurement("wait_ms", 1, "ms", "wait for data")) == "wait for data"


def test_a_sentence_leaves_a_leading_name_alone() -> None:
    assert wording.sentence("num_workers is 0") == "num_workers is 0."
    assert wording.sentence("the loop waits") == "The loop waits."
    assert wording.sentence("") == ""


def test_text_from_outside_loses_its_control_characters() -> None:
    assert wording.clean("\x1b[31mred\x1b[0m\x07 \x1b]0;title\x07a\u202eb\tc\ud800") == "red ab\tc?"


def test_plurals_and_lists() -> None:
    assert wording.plural(1, "fix", "fixes") == "1 fix"
    assert wording.plural(2, "fix", "fixes") == "2 fixes"
    assert wording.plural(0, "finding") == "0 findings"
    assert wording.listing(["a", "b", "c"]) == "a, b and c"
    assert wording.listing([]) == ""


# The verdict


def test_the_verdict_says_where_the_step_goes_and_what_it_could_be() -> None:
    assert verdict(samples.two_findings()) == (
        "The steady step takes 24.8 ms, of which 14.2 ms (57 %) is waiting for data; "
        "the 2 fixes below would bring it to 9 to 12 ms (speed-up 2.1x to 2.8x)."
    )


def test_what_lies_beside_the_steady_step_is_no_part_of_it() -> None:
    finding = replace(samples.WORKERS, savings=replace(samples.WORKERS.savings, part=samples.Part.EPOCH))
    diagnosis = samples.with_findings(samples.two_findings(), finding)
    assert verdict(diagnosis).startswith("The steady step takes 24.8 ms; the fix below would")


def test_a_healthy_step_is_called_so() -> None:
    expected = "The steady step takes 2.65 ms; none of the checks found a cost worth fixing."
    assert verdict(samples.healthy()) == expected


def test_a_step_that_waits_without_a_finding_is_not_called_healthy() -> None:
    slow = replace(samples.with_findings(samples.two_findings()), combined=None)
    assert verdict(slow).startswith("The steady step takes 24.8 ms, of which 14.2 ms (57 %) is waiting for data, but")


def test_checks_that_gave_no_answer_are_in_the_verdict() -> None:
    blind = replace(samples.with_findings(samples.troubled()), combined=None)
    assert "1 could not tell and 1 crashed" in verdict(blind)
    assert "1 finding is suppressed" in verdict(blind)


def test_without_a_step_the_verdict_gives_reason_and_remedy() -> None:
    assert verdict(samples.no_step()) == (
        "The job failed with exit code 1, and no steady step was measured: "
        "the job ended before its second optimizer step; run it for at least 20 steps."
    )


def test_findings_without_a_step_are_announced() -> None:
    evidence = replace(samples.EVIDENCE, step=Missing("no step"))
    alone = samples.with_findings(Diagnosis(evidence, samples.CHECKS, None), samples.WORKERS)
    assert verdict(alone) == "No steady step was measured: no step (1 finding below does not depend on it)."


def test_the_verdict_names_the_rank_when_there_are_several() -> None:
    assert "of rank 3, the slowest of 8," in verdict(samples.troubled())


def test_fixes_that_save_no_time_promise_none() -> None:
    unpriced = replace(samples.two_findings(), combined=Combined(0, 0, 24.8))
    assert verdict(unpriced).endswith("the 2 fixes below would save no time that this run could predict.")


def test_a_prospect_that_is_too_wide_is_told_by_its_safe_end() -> None:
    wide = replace(samples.two_findings(), combined=Combined(5.0, 22.0, 24.8))
    assert verdict(wide).endswith("the 2 fixes below would bring it to 20 ms or less (speed-up at least 1.3x).")


# The anatomy


def test_small_parts_are_merged_and_nothing_is_lost() -> None:
    slices = anatomy.dissect(samples.STEP.parts)
    assert [piece.part for piece in slices] == [
        "input_wait",
        "forward",
        "backward",
        "optimizer",
        "gc",
        "other",
        "rest",
    ]
    assert sum(piece.ms for piece in slices) == pytest.approx(24.8)
    assert sum(piece.share for piece in slices) == pytest.approx(1)
    assert anatomy.dissect(Parts()) == ()


def bar(slices: tuple[anatomy.Slice, ...], width: int) -> str:
    return "".join(piece.look.glyph * n for piece, n in zip(slices, anatomy.cells(slices, width), strict=True))


@pytest.mark.parametrize("width", [1, 5, 7, 8, 40, 80, 121])
def test_a_bar_has_exactly_its_width_and_shows_every_part(width: int) -> None:
    slices = anatomy.dissect(samples.STEP.parts)
    drawn = bar(slices, width)
    assert len(drawn) == width
    assert len(set(drawn)) == min(width, len(slices))


def test_a_bar_is_in_proportion() -> None:
    halves = anatomy.dissect(Parts(forward=1.0, backward=1.0))
    assert anatomy.cells(halves, 10) == (5, 5)
    assert bar((), 10) == ""
