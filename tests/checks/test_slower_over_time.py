"""Steps that get longer, and what is to blame."""

from __future__ import annotations

import pytest
from ill_runs.growth import (
    APPEND_LINE,
    BANK,
    CARRY_LINE,
    CAT_LINE,
    CHECKED,
    HISTORY,
    ITEM_LINE,
    LOG_LINE,
    MEAN_LINE,
    POOLED,
    REGISTER_LINE,
    STATE,
    TAPS,
    WRAP_LINE,
    deeper_graph,
    growing,
    growing_file,
    growing_hooks,
    growing_tensor,
    growing_wrappers,
    longer_rounds,
    repeated_handlers,
    repeated_hooks,
    slowed,
    slower_loader,
    trend,
)
from perfdoctor.checks.slower_over_time import CHECK
from samples import asked, healthy, is_clear, number, with_

from perfdoctor.diagnosis.findings import Confidence, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import GrowingLine, Missing, Parts, Site, Slowing, Step, StepGrowth
from perfdoctor.report import wording

_examined, _found = asked(CHECK)


def test_a_container_is_found_with_the_line_that_adds_to_it_and_the_line_that_takes_longer() -> None:
    finding = _found(growing())
    assert finding.id == "PD15.growing-container" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == APPEND_LINE.line
    assert finding.confidence is Confidence.HIGH and "{line} took" in finding.reasoning
    assert [m.value for m in finding.evidence if m.name == "line"] == [f"train.py:{MEAN_LINE.line}"]


def test_what_is_saved_lies_between_the_mean_step_and_the_last_ones() -> None:
    saved = _found(growing()).savings
    assert saved.low_ms == pytest.approx(0.9 * 10.0) and saved.high_ms == pytest.approx(30.5 / 2)
    assert saved.part is Part.OTHER


def test_elements_with_graphs_are_to_be_kept_as_numbers() -> None:
    finding = _found(growing(with_(HISTORY, graphs=1.0)))
    assert "graph of its step" in finding.reasoning and "history.append(value.item())" in finding.fix.code


def test_a_name_with_a_key_is_no_placeholder() -> None:
    finding = _found(growing(with_(HISTORY, graphs=1.0, name='{"a": log}["loss"]')))
    assert finding.fix.code.startswith('{{"a"')


def test_a_function_that_it_is_given_to_knows_it_by_another_name() -> None:
    elsewhere = GrowingLine(Site("log.py", 3, "write"), "other", 0.1, 20.0, 0.95)
    finding = _found(growing(with_(HISTORY, passed_to=("write",)), lines=(elsewhere,)))
    assert finding.confidence is Confidence.HIGH
    assert [m.value for m in finding.evidence if m.name == "line"] == ["log.py:3"]


@pytest.mark.parametrize(("share", "kind"), [(0.39, OutcomeKind.CANNOT_TELL), (0.41, OutcomeKind.FOUND)])
def test_lines_that_do_not_name_it_are_not_its_doing(share: float, kind: OutcomeKind) -> None:
    """Episodes that last longer as an agent learns, beside a list of their returns."""
    acting = GrowingLine(Site("train.py", 30, "act"), "other", 0.1, 20.0, 1 - share)
    plotting = GrowingLine(MEAN_LINE, "other", 0.1, 5.0, share)
    outcome = _examined(growing(lines=(acting, plotting)))
    assert outcome.kind is kind
    assert kind is OutcomeKind.FOUND or "inputs that get larger" in outcome.reason


def test_without_lines_only_collections_are_blamed_on_what_is_kept() -> None:
    assert _examined(growing(lines=())).kind is OutcomeKind.CANNOT_TELL
    finding = _found(growing(lines=(), trend=trend(Parts(gc=20.0))))
    assert finding.confidence is Confidence.MEDIUM and finding.savings.part is Part.GC


def test_a_deque_that_is_asked_for_its_elements_by_place_is_told_where_it_is_asked() -> None:
    drawn = with_(HISTORY, kind="deque", picked_at=MEAN_LINE)
    finding = _found(growing(containers=(drawn,)))
    assert finding.location is not None and finding.location.line == MEAN_LINE.line
    assert "walks to each place" in finding.reasoning and "capacity" in finding.fix.code
    elsewhere = _found(growing(containers=(with_(drawn, picked_at=CAT_LINE),)))
    assert elsewhere.location is not None and elsewhere.location.line == APPEND_LINE.line
    assert "walks" not in elsewhere.reasoning, "it is not what takes longer"


def test_of_several_containers_the_one_whose_lines_take_longer_is_named() -> None:
    other = with_(HISTORY, name="losses", uses=(APPEND_LINE,), graphs=1.0)
    outcome = _examined(growing(containers=(other, HISTORY)))
    assert [m.value for m in outcome.findings[0].evidence if m.name == "name"] == ["history"]


def test_a_graph_is_found_with_the_line_that_carries_it_on() -> None:
    finding = _found(deeper_graph())
    assert finding.id == "PD15.growing-graph" and finding.fix.code == "self.state = self.state.detach()"
    assert finding.location is not None and finding.location.file == CARRY_LINE.file
    assert number(finding, "backward_ms") == pytest.approx(20.0)


def test_a_graph_that_grows_beside_a_backward_pass_that_does_not_is_not_blamed() -> None:
    outcome = _examined(with_(deeper_graph(), growth=StepGrowth(trend(Parts(other=20.0)), (), (STATE,))))
    assert outcome.kind is OutcomeKind.CANNOT_TELL


def test_a_tensor_is_found_with_the_line_that_makes_it_larger() -> None:
    finding = _found(growing_tensor())
    assert finding.id == "PD15.growing-tensor" and finding.location is not None
    assert finding.location.line == CAT_LINE.line and number(finding, "bytes_per_step") == 10_000


@pytest.mark.parametrize(("named", "passes", "count"), [(0.39, 0.0, 0), (0.41, 0.0, 1), (0.21, 0.5, 1), (0.07, 0.9, 0)])
def test_what_grows_outside_the_backward_pass_is_to_name_the_tensor(named: float, passes: float, count: int) -> None:
    assert len(_examined(growing_tensor(named, passes)).findings) == count


def test_tensors_that_grow_each_in_its_line_are_one_memory() -> None:
    lines = [
        GrowingLine(Site("replay.py", at, "add"), "other", 0.1, 5.1, share) for at, share in ((9, 0.3), (10, 0.25))
    ]
    tensors = tuple(with_(BANK, name=line.site.function, site=line.site, uses=(line.site,)) for line in lines)
    finding = _found(growing(None, lines=tuple(lines), tensors=tensors))
    assert finding.id == "PD15.growing-tensor"
    assert finding.location is not None and finding.location.line == 9, "the dearest"
    assert _examined(growing(None, lines=tuple(lines[:1]), tensors=tensors)).findings == ()


def test_of_a_container_and_a_tensor_the_one_whose_lines_take_longer_is_named() -> None:
    line = GrowingLine(MEAN_LINE, "other", 0.1, 15.0, 0.7)
    both = growing(lines=(line, GrowingLine(CAT_LINE, "other", 0.1, 4.0, 0.2)), tensors=(BANK,))
    assert _found(both).id == "PD15.growing-container"
    more = GrowingLine(CAT_LINE, "other", 0.1, 16.0, 0.75)
    assert _found(growing(lines=(line, more), tensors=(BANK,))).id == "PD15.growing-tensor"


def test_a_loader_whose_items_get_slower_is_found_with_their_line_and_what_the_data_set_keeps() -> None:
    finding = _found(slower_loader())
    assert finding.id == "PD15.slower-loader" and finding.savings.part is Part.INPUT_WAIT
    assert finding.location is not None and finding.location.file == ITEM_LINE.file
    assert [m.value for m in finding.evidence if m.name == "name"] == ["dataset.seen"]
    assert finding.confidence is Confidence.HIGH


def test_without_lines_the_loader_is_named_and_nothing_is_said_to_be_kept() -> None:
    evidence = slower_loader()
    assert isinstance(evidence.growth, StepGrowth) and evidence.growth.batches is not None
    finding = _found(slower_loader(with_(evidence.growth.batches, lines=(), containers=())))
    assert finding.confidence is Confidence.MEDIUM and "{name}" not in finding.reasoning
    assert finding.location is not None and finding.location.line == 20


def test_batches_that_take_longer_while_nobody_waits_for_them_are_not_to_blame() -> None:
    outcome = _examined(slower_loader(trend=trend(Parts(other=20.0))))
    assert outcome.kind is OutcomeKind.CANNOT_TELL


def test_larger_inputs_make_the_passes_longer_too() -> None:
    """Sequences that get longer from epoch to epoch: making them takes longer, and so does computing with them."""
    outcome = _examined(slower_loader(trend=trend(Parts(input_wait=20.0, forward=6.0, backward=7.0))))
    assert outcome.kind is OutcomeKind.CANNOT_TELL and "inputs that get larger" in outcome.reason


def test_a_file_that_is_written_whole_each_time_is_found_without_a_trend_of_the_steps() -> None:
    finding = _found(growing_file())
    assert finding.id == "PD15.growing-file" and finding.savings.part is Part.EPOCH
    assert finding.savings.low_ms == pytest.approx(5.0 * 0.8) and finding.savings.high_ms == pytest.approx(5.5)


@pytest.mark.parametrize("changes", [{"late_bytes": 0, "early_bytes": 0}, {"saves": 1}, {"save_ms": 10.0}])
def test_a_file_that_stays_as_it_is_or_costs_little_is_none(changes: dict[str, float]) -> None:
    assert is_clear(
        _examined(with_(growing_file(), **{f"checkpoints__{name}": value for name, value in changes.items()}))
    )


@pytest.mark.parametrize("kind", ["swapping", "throttled", "lower-clock", "page-faults", "gpu-clock"])
def test_what_slows_the_steps_from_outside_is_named_by_its_own_course(kind: str) -> None:
    finding = _found(slowed(kind))
    assert finding.id == f"PD15.{kind}" and number(finding, "grown_ms") == 12.0
    assert finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize(("grown_ms", "count"), [(6.6, 0), (6.7, 1)])
def test_what_explains_less_than_half_of_the_growth_is_not_to_blame(grown_ms: float, count: int) -> None:
    """Steps gained 20 ms over the run, 13.3 of them between the middles of its first and last third."""
    assert len(_examined(slowed(grown_ms=grown_ms)).findings) == count


def test_only_what_it_explains_can_be_saved() -> None:
    half, all_of_it = _found(slowed(grown_ms=20 / 3)).savings, _found(slowed(grown_ms=40 / 3)).savings
    assert half.low_ms == pytest.approx(all_of_it.low_ms / 2) and half.high_ms == pytest.approx(all_of_it.high_ms / 2)


def test_what_a_driver_call_takes_is_known_by_its_order_only() -> None:
    whole = _found(slowed("gpu-clock", grown_ms=40 / 3)).savings
    finding = _found(slowed("cuda-fragmentation", 0.1, 8.0, 40 / 3, least_ms=4 / 3, beside=(2e8, 6e9)))
    assert finding.savings.high_ms == pytest.approx(whole.high_ms)
    assert finding.savings.low_ms == pytest.approx(whole.low_ms / 10)
    assert (number(finding, "beside"), number(finding, "beside_late")) == (2e8, 6e9)


def test_what_the_job_keeps_is_named_before_the_swap_that_it_leads_to() -> None:
    swapping = slowed().growth
    assert isinstance(swapping, StepGrowth)
    assert _found(growing(slowing=swapping.slowing)).id == "PD15.growing-container"


def test_growth_is_told_as_a_rate_and_its_savings_as_the_least() -> None:
    finding = _found(growing())
    assert number(finding, "rate_ms") == pytest.approx(50.0)  # 20 ms in 400 steps
    assert "{rate_ms}" in finding.reasoning and "at least" in finding.savings.method


def test_a_loop_of_known_length_tells_where_growth_leads_to() -> None:
    """20 ms in 400 steps, of 1,600: 100 ms at the end, 60 in the mean, of which 40 are growth."""
    finding = _found(growing(planned_steps=1600))
    assert number(finding, "planned_ms") == pytest.approx(100.0) and "{planned_ms}" in finding.reasoning
    assert finding.savings.high_ms == pytest.approx(30.5 * 40 / 60)


@pytest.mark.parametrize("planned", [400, 4001])
def test_a_loop_that_is_over_or_endless_leads_nowhere(planned: int) -> None:
    finding = _found(growing(planned_steps=planned))
    assert "{planned_ms}" not in finding.reasoning and finding.savings == _found(growing()).savings


def test_the_line_that_takes_longer_is_told_where_nothing_is_to_blame() -> None:
    acting = GrowingLine(Site("train.py", 30, "act"), "other", 0.1, 20.0, 0.9)
    reason = _examined(growing(None, lines=(acting,))).reason
    assert "90 % of that at train.py:30" in reason


@pytest.mark.parametrize(("low", "count"), [(0.09, 0), (0.11, 1)])
def test_growth_counts_from_a_tenth_on_at_the_lower_end_of_its_interval(low: float, count: int) -> None:
    assert len(_examined(growing(trend=trend(Parts(other=20.0), low=low))).findings) == count


def test_one_jump_is_no_growth() -> None:
    assert is_clear(_examined(growing(trend=trend(Parts(other=20.0), is_gradual=False))))


def test_nothing_that_grows_names_nothing() -> None:
    outcome = _examined(growing(None))
    assert outcome.kind is OutcomeKind.CANNOT_TELL and "100 %" in outcome.reason


def test_a_data_set_that_keeps_more_and_more_is_billed_to_the_wait() -> None:
    assert _found(growing(trend=trend(Parts(input_wait=20.0)))).savings.part is Part.INPUT_WAIT


@pytest.mark.parametrize("part", ["step", "growth"])
def test_without_steps_or_their_trend_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL and "it was not seen" in outcome.reason
    assert _examined(growing(trend=Missing("too few"))).kind is OutcomeKind.CANNOT_TELL


def test_hooks_that_pile_up_are_found_with_the_line_that_registers_them() -> None:
    finding = _found(growing_hooks())
    assert finding.id == "PD15.growing-hooks" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == REGISTER_LINE.line
    assert number(finding, "per_step") == 8.0 and "handle.remove()" in finding.fix.code
    assert "8 hooks more per step" in wording.filled(finding).message
    seldom = _found(growing_hooks(with_(TAPS, per_step=1 / 6)))
    assert "a hook more every 6 steps" in wording.filled(seldom).message


@pytest.mark.parametrize(
    ("share", "blamed"), [(0.26, "PD15.growing-hooks"), (0.24, "PD15.page-faults")], ids=["much", "little"]
)
def test_page_faults_are_not_blamed_for_hooks_whose_lines_take_a_quarter(share: float, blamed: str) -> None:
    """What hooks make is memory that others fault in."""
    line = GrowingLine(Site("loss.py", 8, "hook"), "forward", 0.1, 5.0, share)
    faults = Slowing("page-faults", 70.0, 2_300.0, 18.0)
    assert _found(growing_hooks(lines=(line,), slowing=(faults,))).id == blamed


def test_hooks_whose_line_is_nobodys_are_found_where_they_are_called() -> None:
    call = GrowingLine(Site("train.py", 31, "main"), "forward", 1.0, 12.0, 0.5)
    finding = _found(growing_hooks(with_(TAPS, site=None, uses=(call.site,), passed_to=()), lines=(call,)))
    assert finding.id == "PD15.growing-hooks"
    assert finding.location is not None and finding.location.line == call.site.line


def test_layers_that_pile_up_are_found_with_the_line_that_wraps() -> None:
    finding = _found(growing_wrappers())
    assert finding.id == "PD15.growing-wrappers" and finding.severity is Severity.ERROR
    assert finding.location is not None and finding.location.line == WRAP_LINE.line
    assert number(finding, "layers") == 40 and "checked(original)" in finding.fix.code


def test_layers_whose_own_lines_take_no_longer_are_not_to_blame() -> None:
    elsewhere = GrowingLine(MEAN_LINE, "other", 0.2, 20.0, 0.9)
    assert _examined(growing_wrappers(lines=(elsewhere,))).kind is OutcomeKind.CANNOT_TELL
    assert _examined(growing_wrappers(POOLED)).kind is OutcomeKind.CANNOT_TELL


def test_a_data_set_made_of_one_of_its_kind_is_named_where_it_is_made() -> None:
    evidence = slower_loader()
    assert isinstance(evidence.growth, StepGrowth) and evidence.growth.batches is not None
    nested = with_(evidence.growth.batches, lines=(), containers=())
    finding = _found(slower_loader(nested, wrapped=(CHECKED, POOLED)))
    assert finding.id == "PD15.slower-loader" and number(finding, "layers") == 30
    assert finding.location is not None and finding.location.line == WRAP_LINE.line
    assert "ConcatDataset(parts)" in finding.fix.code


def test_the_same_hook_several_times_is_told_before_steps_are_surely_longer() -> None:
    finding = _found(repeated_hooks())
    assert finding.id == "PD15.repeated-hooks" and finding.severity is Severity.WARNING
    assert finding.location is not None and finding.location.line == 95
    assert "record was registered 3 times on 9 modules each" in wording.filled(finding).message
    # Two thirds of the 6 ms are one too many.
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(0.85 * 4.0), pytest.approx(4.0))


def test_hooks_that_become_more_count_to_the_end_of_the_loop() -> None:
    """Three after 150 steps, so nine of 600 in the end and five on average, at 2 ms each beside 21 ms."""
    finding = _found(repeated_hooks(planned=600))
    assert finding.savings.high_ms == pytest.approx(25.0 * 8.0 / 29.0)
    for steady in ({"planned": 100}, {"planned": 600, "grows": False}):
        assert _found(repeated_hooks(**steady)).savings.high_ms == pytest.approx(4.0)  # type: ignore[arg-type]


def test_hooks_that_take_little_time_may_be_there_twice() -> None:
    assert _examined(repeated_hooks(1.0)).kind is OutcomeKind.CLEAR


def test_a_logger_with_one_handler_twelve_times_is_told_where_it_is_added() -> None:
    finding = _found(repeated_handlers())
    assert finding.id == "PD15.repeated-handlers" and finding.severity is Severity.WARNING
    assert finding.location is not None and (finding.location.file, finding.location.line) == ("setup.py", 14)
    # From one to twelve: six and a half in the mean, of which one is needed.
    assert (finding.savings.low_ms, finding.savings.high_ms) == (pytest.approx(0.85 * 5.5), pytest.approx(5.5))


def test_handlers_that_become_more_count_to_the_end_of_the_loop() -> None:
    assert _found(repeated_handlers(planned=2000)).savings.high_ms > 5.5
    twice = repeated_handlers(grows=False, times=2, planned=2000)
    assert _found(twice).savings.high_ms == pytest.approx(3.25)


def test_handlers_of_a_logger_that_writes_little_may_be_there_twice() -> None:
    quiet = with_(repeated_handlers(), logging=(with_(LOG_LINE, ms_per_step=0.5),))
    assert _examined(quiet).kind is OutcomeKind.CLEAR


def test_hooks_that_take_no_time_are_not_to_blame() -> None:
    elsewhere = GrowingLine(MEAN_LINE, "other", 0.2, 20.0, 0.9)
    assert _examined(growing_hooks(lines=(elsewhere,))).kind is OutcomeKind.CANNOT_TELL


def test_evaluations_that_go_through_all_outputs_so_far_are_an_opportunity() -> None:
    finding = _found(longer_rounds())
    assert (finding.id, finding.severity) == ("PD15.longer-rounds", Severity.NOTE)
    assert finding.location is not None and finding.location.line == APPEND_LINE.line
    assert number(finding, "per_round") == 8 and "self.outputs.clear()" in finding.fix.code
    saved = finding.savings
    assert (saved.low_ms, saved.high_ms) == (pytest.approx(0.5 * 100 / 30), pytest.approx(180 / 30))
    assert saved.part is Part.EPOCH


def test_evaluations_to_come_take_longer_as_far_as_the_steps_are_planned() -> None:
    finding = _found(longer_rounds(720))
    assert number(finding, "planned_ms") == pytest.approx(20 + 3 * 180) and "{planned_ms}" in finding.reasoning
    assert "{planned_ms}" not in _found(longer_rounds()).reasoning
    # 9 ms of a step then, beside what all else takes now.
    step = longer_rounds().step
    assert isinstance(step, Step)
    whole_ms = step.step_ms + step.irregular_ms
    spared = 9.0 / (whole_ms - 100 / 30 + 9.0)
    assert finding.savings.high_ms == pytest.approx(whole_ms * spared)


def test_evaluations_that_take_little_longer_are_none() -> None:
    assert is_clear(_examined(longer_rounds(longer_ms=20.0)))
