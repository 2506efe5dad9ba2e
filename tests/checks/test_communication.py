"""Who is late and why, and what sending costs that need not be."""

from __future__ import annotations

import pytest
from ill_runs.communication import (
    LINE,
    by_turns,
    collecting,
    late,
    late_node,
    pipeline,
    reducing,
    sharding,
    times,
    together,
    two_ranks,
)
from perfdoctor.checks.communication import CHECK
from samples import LOADER, NOT_SEEN, asked, healthy, ids, is_clear, number, on_gpu, with_

from perfdoctor.diagnosis.findings import Confidence, Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import CodeLine, Collective, Evidence, Missing, Site, TrainerOption

_examined, _found = asked(CHECK)


def _reason(outcome: object) -> object:
    return next(m.value for m in outcome.measurements if m.name == "late_reason")  # type: ignore[attr-defined]


def test_two_like_ranks_are_clear() -> None:
    assert is_clear(_examined(two_ranks()))


def test_a_first_rank_that_makes_the_batches_of_all_is_told_where_it_is_told_to() -> None:
    dispatched = TrainerOption("dispatch_batches", Site("train.py", 132, "main"))
    first = two_ranks(together(times(1, 10.5, 0.0), times(0, 0.5, 1.0, input_wait=10.3)), rank=0)
    alone, told = _found(first), _found(with_(first, job__options=(dispatched,)))
    assert told.location is not None and told.location.line == 132 and "dispatch_batches" in told.reasoning
    assert told.savings.low_ms == pytest.approx(alone.savings.low_ms / 2), "then each has its own to make"
    second = with_(late(part="input_wait"), job__options=(dispatched,))
    assert "dispatch_batches" not in _found(second).reasoning


def test_one_rank_waits_for_nobody() -> None:
    assert _examined(healthy()).kind is OutcomeKind.NOT_APPLICABLE


@pytest.mark.parametrize("evidence", [with_(two_ranks(), communication=NOT_SEEN), with_(two_ranks(), step=NOT_SEEN)])
def test_ranks_that_were_not_compared_are_no_healthy_ones(evidence: object) -> None:
    assert _examined(evidence).kind is OutcomeKind.CANNOT_TELL  # type: ignore[arg-type]


def test_a_gpu_cannot_be_told() -> None:
    evidence = on_gpu(two_ranks(), communication=NOT_SEEN)
    assert _examined(evidence).kind is OutcomeKind.CANNOT_TELL


@pytest.mark.parametrize(
    ("part", "billed"),
    [
        ("input_wait", Part.INPUT_WAIT),
        ("forward", Part.COMPUTE),
        ("backward", Part.COMPUTE),
        ("gc", Part.GC),
        ("other", Part.OTHER),
    ],
)
def test_the_late_rank_says_where_its_time_goes(part: str, billed: Part) -> None:
    outcome = _examined(late(part=part))
    finding = _found(late(part=part))
    assert finding.id == "PD19.late-rank" and finding.severity is Severity.ERROR
    assert (number(finding, "rank"), _reason(outcome)) == (1, part)
    assert number(finding, "excess_ms") == pytest.approx(10.0)
    # Its passes may have more to do, of which the other rank would then have half.
    part_of_it = 0.5 if part in ("forward", "backward") else 1.0
    assert finding.savings.low_ms == pytest.approx(part_of_it * 9.5) and finding.savings.part is billed
    assert finding.savings.high_ms >= 9.5
    assert finding.savings.general, "what names the cause itself is billed first"


@pytest.mark.parametrize(("part", "line"), [("forward", 31), ("other", 50), ("input_wait", 12), ("gc", None)], ids=str)
def test_the_late_rank_names_the_line_that_takes_longest_where_it_is_late(part: str, line: int | None) -> None:
    lines = tuple(
        CodeLine(Site("train.py", number, "main"), where, False, 5.0, 0.5)
        for number, where in ((30, "backward"), (31, "forward"), (32, "forward"), (50, "other"))
    )
    # Of a batch that nothing of the user's makes the loader is named.
    finding = _found(with_(late(part=part), code_lines=lines, loaders=(LOADER,)))
    assert (finding.location and finding.location.line) == line


@pytest.mark.parametrize(("part", "line"), [("forward", 41), ("backward", 41), ("other", 50)])
def test_passes_that_take_longer_on_data_cut_by_rank_name_the_cut(part: str, line: int) -> None:
    lines = tuple(CodeLine(Site("train.py", 50, "main"), where, False, 5.0, 0.5) for where in ("backward", "other"))
    cut = TrainerOption("shard", Site("data.py", 41, "plan_batches"))
    finding = _found(with_(late(part=part), code_lines=lines, job__options=(cut,)))
    assert finding.location is not None and finding.location.line == line


def test_a_rank_with_more_data_names_its_loader() -> None:
    more = with_(times(1, 0.5, 1.0, forward=12.0, backward=20.0), samples=48.0, batch_bytes=6144.0)
    seen = with_(two_ranks(together(times(0, 10.5), more)), loaders=(LOADER,))
    finding = _found(seen)
    assert _reason(_examined(seen)) == "data-size"
    assert finding.location is not None and finding.location.line == 12


def test_the_rank_that_waits_does_not_say_so_of_itself() -> None:
    assert ids(_examined(late(rank=0))) == []


@pytest.mark.parametrize(("by_ms", "count"), [(1.0, 0), (1.2, 0), (2.5, 1)])
def test_lateness_counts_from_a_twentieth_of_the_step_on(by_ms: float, count: int) -> None:
    assert len(ids(_examined(late(by_ms=by_ms)))) == count


def test_ranks_that_take_turns_have_no_late_one() -> None:
    assert ids(_examined(with_(late(by_ms=4.0), communication__late_low_ms=0.0))) == []


def _held_back(**changes: float) -> object:
    """Rank 1 takes 10 ms longer for computing, and no CPU time more."""
    return with_(times(1, 0.5, 1.0, forward=12.0, backward=20.0), **changes)


def test_a_rank_that_its_quota_stops_is_named_so_and_not_after_another_process() -> None:
    # A kernel counts the time for which a quota stops a thread as a wait for a CPU.
    stopped = two_ranks(together(times(0, 10.5), _held_back(throttled_ms=9.0, run_delay_ms=9.0)))
    assert _reason(_examined(stopped)) == "throttled"
    finding = _found(stopped)
    assert number(finding, "excess_ms") == pytest.approx(9.0) and "quota" in finding.fix.text
    alike = two_ranks(together(with_(times(0, 10.5), throttled_ms=9.0), _held_back(throttled_ms=9.5)))
    assert _reason(_examined(alike)) != "throttled", "all ranks share the quota"


def test_a_rank_that_works_more_meets_its_quota_because_of_that() -> None:
    working = _held_back(throttled_ms=9.0, cpu_ms=34.0)
    assert _reason(_examined(two_ranks(together(times(0, 10.5), working)))) != "throttled"


@pytest.mark.parametrize(
    ("mhz", "others", "reason"),
    [
        (2_000.0, 3_400.0, "lower-clock"),
        (3_300.0, 3_400.0, "backward"),
        (0.0, 3_400.0, "backward"),
        (2_000.0, 0.0, "backward"),
    ],
)
def test_a_rank_on_a_slower_cpu_is_named_so(mhz: float, others: float, reason: str) -> None:
    ranks = with_(times(0, 10.5), clock_mhz=others), _held_back(clock_mhz=mhz)
    outcome = _examined(two_ranks(together(*ranks)))
    assert _reason(outcome) == reason
    if reason == "lower-clock":
        (finding,) = outcome.findings
        assert number(finding, "excess_ms") == pytest.approx(24.0 * (1 - 2_000 / 3_400))
        assert "2,000 MHz instead of 3,400" in finding.message


def test_a_slower_clock_that_explains_little_is_no_reason() -> None:
    ranks = with_(times(0, 20.5), clock_mhz=3_400.0), with_(_held_back(parts__backward=30.0), clock_mhz=3_000.0)
    assert _reason(_examined(two_ranks(together(*ranks)))) == "backward"


def _slower(**changes: float) -> object:
    """Rank 1 takes a quarter longer for forward and backward pass alike, and more CPU time."""
    return with_(times(1, 0.5, 0.8, forward=10.0, backward=17.5), cpu_ms=29.0, **changes)


def test_a_rank_that_is_slower_in_all_where_cpus_are_short_may_be_another_next_time() -> None:
    short = two_ranks(together(with_(times(0, 6.0), run_delay_ms=9.0), _slower(run_delay_ms=10.0)))
    finding = _found(short)
    assert finding.severity is Severity.NOTE and "another rank" in finding.reasoning
    assert number(finding, "crowd_ms") == 9.0
    quiet = _found(two_ranks(together(with_(times(0, 6.0), run_delay_ms=2.0), _slower(run_delay_ms=2.0))))
    assert quiet.severity is not Severity.NOTE and "another rank" not in quiet.reasoning


def test_work_that_is_longer_in_one_part_is_this_ranks_however_short_cpus_are() -> None:
    waiting = with_(times(0, 10.5), run_delay_ms=12.0)
    reading = with_(times(1, 0.5, 1.0, input_wait=10.3), run_delay_ms=12.0)
    finding = _found(two_ranks(together(waiting, reading)))
    assert (
        finding.severity is Severity.ERROR and _reason(_examined(two_ranks(together(waiting, reading)))) == "input_wait"
    )


def test_a_cpu_that_others_have_comes_before_the_parts_that_it_lengthens() -> None:
    waiting = times(0, 10.5)
    kept = with_(times(1, 0.5, 1.0, forward=12.0, backward=20.0), run_delay_ms=9.0)
    outcome = _examined(two_ranks(together(waiting, kept)))
    assert _reason(outcome) == "other-processes"
    assert _found(two_ranks(together(waiting, kept))).severity is Severity.ERROR
    wandering = with_(kept, late_share=0.6)
    assert _found(two_ranks(together(waiting, wandering))).severity is Severity.NOTE
    crowded = with_(waiting, run_delay_ms=9.0), with_(kept, run_delay_ms=13.0, cpu_ms=34.0)
    assert _reason(_examined(two_ranks(together(*crowded)))) == "backward", "as long for its work as the other"
    unknown = with_(kept, run_delay_ms=NOT_SEEN)
    assert _reason(_examined(two_ranks(together(waiting, unknown)))) == "backward"


def test_a_rank_that_is_slow_in_everything_computes_slowly() -> None:
    slow = times(1, 0.5, 1.0, forward=12.5, backward=18.5, optimizer=3.5)
    assert _reason(_examined(two_ranks(together(times(0, 11.0), slow)))) == "compute"


@pytest.mark.parametrize(
    ("changes", "passes_ms", "reason"),
    [
        ({"samples": 48.0}, (12.0, 21.0), "data-size"),
        ({"batch_bytes": 6144.0}, (12.0, 21.0), "data-size"),
        ({"samples": 33.0}, (12.0, 21.0), "backward"),
        ({"samples": 48.0}, (18.0, 44.0), "backward"),
        ({"samples": NOT_SEEN, "batch_bytes": NOT_SEEN}, (8.0, 25.0), "backward"),
    ],
)
def test_larger_batches_are_the_reason_where_the_passes_are_longer_in_proportion(
    changes: dict[str, object], passes_ms: tuple[float, float], reason: str
) -> None:
    forward, backward = passes_ms
    more = forward + backward - 22.0
    larger = with_(times(1, 0.5, 1.0, forward=forward, backward=backward), cpu_ms=24.0 + more, **changes)
    outcome = _examined(two_ranks(together(times(0, 0.5 + more), larger)))
    assert _reason(outcome) == reason
    if reason == "data-size":
        (finding,) = outcome.findings
        assert number(finding, "times_data") == pytest.approx(1.5) and "{times_data} the data" in finding.message
        # Of the ms that it is late by, known to 5 %, the other rank has half to do then.
        late_ms = more + 0.5 - larger.parts.communication
        assert finding.savings.low_ms == pytest.approx(0.5 * 0.95 * late_ms)
        assert finding.savings.high_ms == pytest.approx(0.75 * 1.05 * late_ms)


def test_a_neighbour_that_is_felt_in_one_part_alone_takes_no_cpu_time_of_the_rank() -> None:
    """Its backward pass is where the rank was put aside."""
    waiting, kept = times(0, 10.5), with_(times(1, 0.5, 1.0, backward=24.0), run_delay_ms=9.0)
    assert _reason(_examined(two_ranks(together(waiting, kept)))) == "other-processes"
    works = with_(kept, cpu_ms=34.0)
    assert _reason(_examined(two_ranks(together(waiting, works)))) == "backward"
    sleeps = with_(kept, run_delay_ms=4.0)
    assert _reason(_examined(two_ranks(together(waiting, sleeps)))) == "backward"


def test_of_four_ranks_the_last_speaks() -> None:
    ranks = (*(times(rank, 10.5, 0.0) for rank in range(3)), times(3, 0.5, 1.0, backward=24.0))
    assert number(_found(with_(two_ranks(together(*ranks), rank=3), job__world_size=4)), "rank") == 3


def test_ranks_on_other_machines_make_it_less_sure() -> None:
    assert _found(late()).confidence is Confidence.HIGH
    assert _found(with_(late(), job__world_size=8)).confidence is Confidence.MEDIUM


# ---------------------------------------------------------------------------------------------------------
# Sending


def test_sending_that_nothing_hides_is_an_opportunity() -> None:
    finding = _found(reducing())
    assert finding.id == "PD19.exposed-communication"
    assert (finding.savings.low_ms, finding.savings.high_ms) == (0.0, 4.0)
    assert finding.savings.part is Part.COMMUNICATION


def test_what_another_finding_names_is_not_told_twice() -> None:
    assert ids(_examined(collecting("barrier"))) == ["PD19.barrier-in-step"]


def test_needless_reductions_are_those_after_the_first() -> None:
    finding = _found(collecting("gradients_again", site=None, calls_per_step=3.0))
    assert number(finding, "reductions") == 4.0
    assert finding.savings.ceiling_ms == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("buckets", "found"),
    [
        ((66_048,) * 60, "PD19.small-buckets"),
        ((1 << 20, 24 << 20), "PD19.exposed-communication"),
        ((25 << 20,) * 60, "PD19.exposed-communication"),
        ((), "PD19.exposed-communication"),
    ],
)
def test_only_many_and_small_buckets_are_found(buckets: tuple[int, ...], found: str) -> None:
    assert ids(_examined(reducing(bucket_bytes=buckets))) == [found]


def test_buffers_are_sent_by_default_and_therefore_an_opportunity() -> None:
    assert _found(collecting("buffers")).severity is Severity.NOTE


@pytest.mark.parametrize(("ms", "count"), [(0.5, 0), (8.0, 1)])
@pytest.mark.parametrize("kind", ["barrier", "all_gather_object", "all_reduce_scalar", "buffers"])
def test_a_collective_counts_by_what_it_takes(kind: str, ms: float, count: int) -> None:
    assert len(ids(_examined(collecting(kind, ms)))) == count


def test_a_collective_of_the_loop_has_its_line() -> None:
    finding = _found(collecting("monitored_barrier"))
    assert finding.location is not None and finding.location.line == LINE.line


def test_one_large_reduction_called_by_the_loop_may_be_what_it_is_for() -> None:
    assert ids(_examined(collecting("all_reduce"))) == ["PD19.exposed-communication"]


def test_waiting_for_the_late_rank_inside_a_collective_is_not_its_cost() -> None:
    call = Collective("barrier", LINE, 1.0, 20.0, 0.4)
    assert is_clear(_examined(two_ranks(together(calls=(call,)))))


# ---------------------------------------------------------------------------------------------------------
# Several late ranks, nodes, turns


def test_a_node_whose_ranks_are_all_late_is_told_once_as_a_node() -> None:
    finding = _found(late_node())
    assert finding.id == "PD19.late-node" and "node {node} ({late_ranks:rank})" in finding.message
    told = {m.name: m.value for m in finding.evidence}
    assert (told["node"], told["late_ranks"], told["late_share"]) == ("b", 2, 1.0)
    assert finding.savings.low_ms == pytest.approx(9.5 / 2)
    assert [ids(_examined(late_node(rank=rank))) for rank in (0, 1, 2)] == [[], [], []]


def test_a_node_that_computes_more_slowly_in_all_is_a_slower_machine() -> None:
    slower = {"parts__forward": 12.0, "parts__optimizer": 3.0, "cpu_ms": 36.0}
    assert _reason(_examined(late_node(by_ms=7.0, **slower))) == "slower-machine"
    only_backward = late_node(by_ms=10.0, cpu_ms=34.0)
    assert _reason(_examined(only_backward)) == "backward", "more work, on any machine"
    rank_alone = with_(times(1, 0.5, 1.0, backward=21.0), **slower)
    assert _reason(_examined(two_ranks(together(times(0, 12.0), rank_alone)))) != "slower-machine"


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ((), "for rank {rank}:"),
        ((1,), "for ranks 1 and 5: its"),
        ((1, 2, 3), "for 4 ranks (1, 2, 3, ...)"),
    ],
)
def test_few_late_ranks_are_named_and_many_are_counted(beside: tuple[int, ...], words: str) -> None:
    usual = [times(rank, 0.6 if rank in beside else 10.5, 0.0) for rank in range(5)]
    seen = together(*usual, times(5, 0.5, 1.0, backward=24.0), beside=beside, late_ms=10.0, late_low_ms=9.0)
    assert words in _found(two_ranks(seen, rank=5)).message


def test_the_machine_of_a_late_rank_is_told_where_there_are_several() -> None:
    seen = together(with_(times(0, 10.5, 0.0), node="a"), with_(times(1, 0.5, 1.0, backward=24.0), node="b"))
    assert "rank {rank} (node {node})" in _found(two_ranks(seen)).message


def test_ranks_that_straggle_by_turns_are_told_with_where() -> None:
    finding = _found(by_turns())
    assert finding.id == "PD19.late-by-turns" and finding.severity is Severity.WARNING
    assert "mostly garbage collections" in finding.message and "ranks 1 and 0" in finding.reasoning
    assert finding.savings.part is Part.GC and finding.savings.general
    assert finding.savings.low_ms == pytest.approx(5.4) and finding.savings.high_ms == pytest.approx(6.0)
    assert ids(_examined(by_turns(rank=0))) == []


@pytest.mark.parametrize("changes", [{"ms": 1.0}, {"low_ms": 0.0}])
def test_turns_that_cost_little_or_by_chance_are_not_told(changes: dict[str, float]) -> None:
    assert "PD19.late-by-turns" not in ids(_examined(by_turns(**changes)))  # type: ignore[arg-type]


def test_turns_for_want_of_a_cpu_or_without_a_reason_do_not_alarm() -> None:
    assert _found(by_turns(part_ms=1.0)).severity is Severity.NOTE
    seen = by_turns().communication
    assert not isinstance(seen, Missing)
    short = with_(seen, ranks=tuple(with_(one, run_delay_ms=9.0) for one in seen.ranks))
    finding = _found(two_ranks(short))
    assert finding.severity is Severity.NOTE and "another rank" in finding.reasoning


def test_what_the_late_rank_costs_is_not_told_twice_as_turns() -> None:
    seen = late().communication
    assert not isinstance(seen, Missing)
    turns = by_turns().communication.turns  # type: ignore[union-attr]
    assert ids(_examined(two_ranks(with_(seen, turns=with_(turns, ms=10.2, low_ms=10.0))))) == ["PD19.late-rank"]


# ---------------------------------------------------------------------------------------------------------
# Divided models


def test_stages_of_a_pipeline_are_not_compared() -> None:
    outcome = _examined(pipeline())
    finding = _found(pipeline())
    assert finding.id == "PD19.pipeline-bubble" and finding.savings.low_ms == 0.0
    assert number(finding, "cost_ms") == pytest.approx(8.0) and _reason(outcome) == "several"
    quiet = _examined(pipeline(bubble_ms=0.5))
    assert is_clear(quiet) and "different parts of the model" in quiet.reason


def test_many_small_groups_of_parameters_are_told_with_what_would_do() -> None:
    finding = _found(sharding())
    assert finding.id == "PD19.small-shards" and finding.severity is Severity.ERROR
    assert (number(finding, "groups"), number(finding, "enough")) == (16, 2)
    assert number(finding, "cost_ms") == pytest.approx(9.0 * 14 / 16)
    assert number(finding, "collectives") == 48
    assert finding.savings.part is Part.COMMUNICATION


@pytest.mark.parametrize("evidence", [sharding(groups=6), sharding(bytes_each=25 << 20)])
def test_groups_that_are_few_or_large_are_only_what_sending_takes(evidence: Evidence) -> None:
    finding = _found(evidence)
    assert finding.id == "PD19.exposed-communication" and "all-gathers of parameters" in finding.message
    assert "reshard_after_forward=False" in (finding.fix.code or "")
    assert number(finding, "fsdp_all_gather_ms") == pytest.approx(6.0)
