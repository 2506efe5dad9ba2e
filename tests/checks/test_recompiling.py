"""torch.compile: what is compiled again, what breaks, what was given up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ill_runs.compile import BREAKS, FORWARD, SIZES, compiled, never_ran, recompiling, to_its_end, uncompiled
from perfdoctor.checks.compile import CHECK, examine
from samples import healthy, ids, is_clear, number, only, with_

from perfdoctor.diagnosis.findings import Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CallSite, CompiledAgain, Evidence, Missing, Site


def test_compiling_that_goes_on_is_an_ill_with_its_guard_and_the_function() -> None:
    finding = only(examine(recompiling(), CHECK.limits))
    assert finding.id == "PD18.recompiles" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == 30
    assert number(finding, "cost_ms") == pytest.approx(20.0)
    assert (number(finding, "again"), number(finding, "each_ms")) == (20, pytest.approx(200.0))
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(18.5), pytest.approx(22.0))
    assert "dynamic=True" in finding.fix.code


def test_where_steps_that_compile_are_irregular_they_are_billed_beside_the_step() -> None:
    rare = with_(recompiling(irregular=True), step__irregular_ms=30.0)
    assert only(examine(rare, CHECK.limits)).savings.part is Part.EPOCH
    assert only(examine(recompiling(), CHECK.limits)).savings.part is Part.COMPUTE


def test_of_a_librarys_module_the_line_that_compiles_it_is_named() -> None:
    finding = only(examine(recompiling(recompiled=(replace(SIZES, site=None),)), CHECK.limits))
    assert finding.location is not None and finding.location.line == 12


def test_another_guard_has_another_fix() -> None:
    number_guard = replace(SIZES, reasons=("self.scale == 0.5",))
    assert "torch.tensor" in only(examine(recompiling(recompiled=(number_guard,)), CHECK.limits)).fix.code


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (compiled(), False),
        (recompiling(late_wall_ms=39_000.0), True),
        (recompiling(late_wall_ms=41_000.0), False),
        (recompiling(recompiled=(replace(SIZES, count=2),)), False),
        (recompiling(recompiled=(replace(SIZES, count=3),)), True),
    ],
)
def test_a_few_compilations_or_little_of_the_time_are_no_finding(run: Evidence, told: bool) -> None:
    """Compiling that ends is none of the later half."""
    assert ids(examine(run, CHECK.limits)) == ["PD18.recompiles"] * told


def test_breaks_are_an_opportunity_without_a_number_and_one_is_none() -> None:
    finding = only(examine(compiled(breaks=BREAKS), CHECK.limits))
    assert finding.id == "PD18.graph-breaks" and finding.severity is Severity.NOTE
    assert finding.savings.high_ms == 0 and number(finding, "breaks") == 2
    assert finding.location is not None and finding.location.line == 33
    assert "model.py:33 (Failed to trace builtin operator)" in [m.value for m in finding.evidence]
    assert is_clear(examine(compiled(breaks=BREAKS[:1]), CHECK.limits))


@pytest.mark.parametrize(("calls", "gains"), [(5000.0, True), (100.0, False)])
def test_a_compiled_object_that_is_never_called_is_told_with_what_calls_cost(calls: float, gains: bool) -> None:
    finding = only(examine(never_ran(calls), CHECK.limits))
    assert finding.id == "PD18.never-ran" and finding.severity is Severity.NOTE
    assert finding.location is not None and finding.location.line == 12
    assert (finding.savings.high_ms > 0) == gains


def test_a_function_that_was_given_up_runs_uncompiled() -> None:
    finding = only(examine(compiled(given_up=(SIZES,)), CHECK.limits))
    assert finding.id == "PD18.given-up" and finding.severity is Severity.NOTE
    assert "size mismatch" in next(str(m.value) for m in finding.evidence if m.name == "guard")


def test_many_small_operators_are_an_opportunity_to_compile() -> None:
    finding = only(examine(uncompiled(), CHECK.limits))
    assert finding.id == "PD18.not-compiled" and finding.severity is Severity.NOTE
    assert finding.fix.remedies == ("compile.model",)
    assert number(finding, "calling_ms") == pytest.approx(10.0)
    # 40 % of that to all, less 50 operators of 2 us for entering compiled code.
    assert (finding.savings.low_ms, finding.savings.high_ms) == pytest.approx((3.9, 9.9))


READ = CallSite("scalar_read", Site("model.py", 31, "forward"), 1.0, 0.01, "forward")


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (uncompiled(600.0), False),  # calling them takes 1.2 ms of 25: 1.1 at best
        (uncompiled(700.0), True),
        (uncompiled(700.0, step__micro_batches=2.0), False),  # compiled code is entered twice
        (uncompiled(job__compile_lacks="torch.compile needs a C++ compiler on the CPU, and there is no g++"), False),
        (uncompiled(job__compile_lacks=None), False),
        (uncompiled(call_sites=(READ,)), False),
        (uncompiled(call_sites=(replace(READ, detail="other"),)), True),
        (uncompiled(ops=Missing("not profiled")), False),
        (uncompiled(ops__batch_timings=Missing("not timed")), False),
        (uncompiled(step=Missing("too short")), False),
    ],
)
def test_compiling_is_offered_only_where_calls_can_be_saved(run: Evidence, told: bool) -> None:
    outcome = examine(run, CHECK.limits)
    assert ids(outcome) == ["PD18.not-compiled"] * told
    assert told or outcome.kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (healthy(), OutcomeKind.NOT_APPLICABLE),
        (with_(compiled(), step=Missing("too short")), OutcomeKind.CANNOT_TELL),
        (with_(compiled(), compilation=Missing("not recorded")), OutcomeKind.CANNOT_TELL),
        (compiled(count=0), OutcomeKind.CANNOT_TELL),
    ],
)
def test_what_is_not_known_is_not_claimed(run: Evidence, kind: OutcomeKind) -> None:
    assert examine(run, CHECK.limits).kind is kind


# ---------------------------------------------------------------------------------------------------------
# The break-even step


def test_where_compiling_takes_most_of_the_step_nearly_all_of_it_is_saved() -> None:
    """24 of 25 ms: code for any size may be slower than the one that is left, not than what compiling took."""
    most = CompiledAgain(count=190, steps=200, ms=4800.0, beyond_ms=4900.0, whole_count=190, whole_ms=4800.0)
    saved = only(examine(recompiling(again=most), CHECK.limits)).savings
    assert (saved.low_ms, saved.high_ms) == (pytest.approx(23.7), pytest.approx(24.5)) and saved.first


@pytest.mark.parametrize(("eager_ms", "found"), [(24.5, []), (22.9, []), (22.5, ["PD18.slower-than-eager"])])
def test_a_compiled_step_that_is_longer_than_those_before_is_an_ill(eager_ms: float, found: list[str]) -> None:
    assert ids(examine(compiled(eager_ms=eager_ms), CHECK.limits)) == found


def test_the_break_even_step_is_told_where_steps_ran_in_python_first() -> None:
    seen = examine(compiled(eager_ms=30.0), CHECK.limits)
    told = {m.name: m.value for m in seen.measurements}
    assert is_clear(seen) and told["break_even"] == 500 and "{break_even:step}" in seen.reason
    unknown = examine(compiled(), CHECK.limits)
    assert is_clear(unknown) and "`--trial` would" in unknown.reason


@pytest.mark.parametrize(
    ("eager_ms", "told"),
    [(Missing("none seen"), "takes {required} as long"), (30.0, "paid off after {break_even:step}")],
)
def test_a_job_that_is_too_short_for_compiling_is_an_opportunity(eager_ms: float | Missing, told: str) -> None:
    finding = only(examine(to_its_end(500, 12.0, eager_ms=eager_ms), CHECK.limits))
    assert finding.id == "PD18.does-not-pay-off" and finding.severity is Severity.NOTE
    assert told in finding.message and finding.savings.high_ms == 0 and finding.fix.remedies == ("compile.off",)


@pytest.mark.parametrize(("steps", "eager_ms"), [(5000, Missing("none seen")), (3000, 30.0)])
def test_a_job_that_is_long_enough_is_clear(steps: int, eager_ms: float | Missing) -> None:
    assert is_clear(examine(to_its_end(steps, 12.0, eager_ms=eager_ms), CHECK.limits))


def test_of_a_job_that_was_stopped_nobody_knows_its_length() -> None:
    stopped = with_(to_its_end(500, 12.0), anatomy__stopped=True)
    assert is_clear(examine(stopped, CHECK.limits))
    assert is_clear(examine(with_(stopped, anatomy=Missing("too short")), CHECK.limits))


COUNTER = replace(
    SIZES,
    reasons=("self.calls == 7          # self.calls += 1  # project/model.py:12 in fade (HINT: integers are static)",),
)


def test_the_line_that_reads_what_the_guard_names_is_told_where_dynamo_says_it() -> None:
    finding = only(examine(compiled(given_up=(COUNTER,)), CHECK.limits))
    assert finding.location is not None
    assert (finding.location.file, finding.location.line, finding.location.function) == ("model.py", 12, "fade")
    assert {one.name: one.value for one in finding.evidence}["guard"] == "self.calls == 7"


@pytest.mark.parametrize("where", ["project/other.py:12 in fade", "model.py has no line"])
def test_a_line_of_another_file_is_the_functions(where: str) -> None:
    elsewhere = replace(COUNTER, reasons=(f"self.calls == 7  # self.calls += 1  # {where}",))
    finding = only(examine(compiled(given_up=(elsewhere,)), CHECK.limits))
    assert finding.location is not None and finding.location.line == FORWARD.line


@pytest.mark.parametrize(("most", "told"), [(3, True), (2, False)])
def test_one_function_for_the_third_time_is_not_its_last_new_size(most: int, told: bool) -> None:
    """At the start of each of four epochs, say: one of them in the later half of the steps."""
    again = CompiledAgain(count=4, steps=400, ms=9000.0, beyond_ms=9000.0, whole_count=4, whole_ms=9000.0, most=most)
    once = replace(SIZES, count=1, ms=3000.0)
    late = recompiling(recompiled=(once,), again=again, late_ms=3000.0, late_wall_ms=6000.0)
    assert ("PD18.recompiles" in ids(examine(late, CHECK.limits))) == told
