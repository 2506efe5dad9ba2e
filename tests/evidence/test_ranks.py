"""Ranks compared: who waits for whom, from durations alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import MACHINE, recorded, sample, settings, site, steps, torch, write, write_run

from perfdoctor.evidence import communication, lateness
from perfdoctor.evidence.build import build as build_run
from perfdoctor.evidence.model import Communication, Missing
from perfdoctor.evidence.nodes import nodes
from perfdoctor.recording.host import HostRecording
from perfdoctor.recording.reader import read

N = 101
OWN = 5_000
Us = Sequence[int] | int


def _records(rank: int, wall_us: Us, waits_us: Us, *more: dict[str, Any], world: int = 2, **us: Any) -> list[Any]:
    environment = {"RANK": str(rank), "WORLD_SIZE": str(world)}
    walls = [wall_us] * N if isinstance(wall_us, int) else wall_us
    waits = [waits_us] * N if isinstance(waits_us, int) else waits_us
    told = settings(environment=environment)
    return [torch(environment=environment), told, steps(walls, communication_us=waits, **us), *more]


def _built(directory: Path, *ranks: list[Any]) -> Communication | Missing:
    return communication.build([recorded(directory, *records, pid=100 + i) for i, records in enumerate(ranks)])


def _compared(directory: Path, *ranks: list[Any]) -> Communication:
    built = _built(directory, *ranks)
    assert not isinstance(built, Missing), built
    return built


def test_the_rank_that_waits_least_is_late_by_what_the_next_waits_more(tmp_path: Path) -> None:
    first = _records(0, 30_000, 26_000, forward_us=1_000, backward_us=2_000)
    second = _records(1, 30_000, 1_000, forward_us=1_000, backward_us=27_000)
    seen = _compared(tmp_path, first, second)
    assert (seen.late, seen.late_ms, seen.exposed_ms) == (1, pytest.approx(25.0), pytest.approx(1.0))
    assert (seen.late_low_ms, seen.late_high_ms) == (pytest.approx(25.0), pytest.approx(25.0))
    assert seen.late_rank.parts.backward == pytest.approx(27.0) and seen.late_rank.late_share == 1.0
    assert seen.late_rank.own_ms == pytest.approx(29.0) and seen.others[0].own_ms == pytest.approx(4.0)
    assert (seen.waits_ms(0), seen.waits_ms(1)) == (pytest.approx(25.0), 0.0)


def test_ranks_that_take_turns_have_no_late_one(tmp_path: Path) -> None:
    turns = np.random.default_rng(0).integers(0, 2, N) * 4_000
    seen = _compared(tmp_path, _records(0, 10_000, list(turns)), _records(1, 10_000, list(4_000 - turns)))
    assert seen.late_low_ms == 0.0 and seen.late_ms < 1.0
    assert seen.late_high_ms > 1.0, "at most so much, if nobody else were late instead"


@pytest.mark.parametrize(
    ("waits_ms", "late", "beside", "late_ms"),
    [
        ((20, 20, 1, 20), 2, (), 19.0),
        ((20, 1, 1.5, 20), 1, (2,), 19.0),  # one alone would be late by 0.5 ms
        ((20, 6, 1, 20), 2, (1,), 19.0),
        ((20, 18, 1, 20), 2, (), 17.0),
        ((20, 1, 1, 1), 1, (), 0.0),  # more than half are no exception
    ],
)
def test_of_four_ranks_up_to_two_are_late_together(
    tmp_path: Path, waits_ms: tuple[float, ...], late: int, beside: tuple[int, ...], late_ms: float
) -> None:
    ranks = [_records(rank, 30_000, int(1000 * ms), world=4) for rank, ms in enumerate(waits_ms)]
    seen = _compared(tmp_path, *ranks)
    assert (seen.late, seen.beside, seen.late_ms) == (late, beside, pytest.approx(late_ms))
    assert {times.rank for times in seen.others} == {0, 1, 2, 3} - {late, *beside}


@pytest.mark.parametrize(
    ("pinned", "beside", "late_ms"),
    [
        ([[0], [1], [0], [1]], (2,), 4.6),
        ([[0, 1]] * 4, (), 0.0),  # all share what there is
        ([[]] * 4, (), 0.0),  # a recording that does not say
        ([[0], [1], [2], [3]], (), 0.0),
    ],
    ids=["two and two", "all", "not known", "each its own"],
)
def test_ranks_that_a_neighbour_on_their_cpu_makes_late_by_turns(
    tmp_path: Path, pinned: list[list[int]], beside: tuple[int, ...], late_ms: float
) -> None:
    """Measured so: of two ranks on one CPU the one that computes first waits for the other, and means have no gap."""
    turn = np.random.default_rng(1).integers(0, 10, N) < 6
    waits = [np.where(turn, 19_000, 29_000), np.full(N, 24_000), np.where(turn, 28_500, 20_000), np.full(N, 24_000)]
    ranks = [_records(rank, 40_000, list(us), world=4) for rank, us in enumerate(waits)]
    for records, cpus in zip(ranks, pinned, strict=True):
        records[1]["cpus"] = cpus
    seen = _compared(tmp_path, *ranks)
    assert (seen.late, seen.beside) == (0, beside)
    assert seen.late_ms == pytest.approx(late_ms, abs=0.2)


def test_a_step_that_is_not_steady_on_one_rank_counts_on_none(tmp_path: Path) -> None:
    saves = [100_000 if step % 25 == 0 else 0 for step in range(N)]
    walls = [10_000 + us for us in saves]
    saving = _records(0, walls, 1_000, checkpoint_us=saves)
    waiting = _records(1, walls, [1_000 + us for us in saves])
    seen = _compared(tmp_path, saving, waiting)
    assert seen.late_ms == pytest.approx(0.0)
    assert seen.steps < N - 4


def test_steps_beside_our_own_writing_are_left_out(tmp_path: Path) -> None:
    held = [20_000 if step in (40, 60, 80) else 1_000 for step in range(N)]
    samples = [sample(step) for step in (40, 60, 80)]
    walls = [10_000 + us for us in held]
    seen = _compared(tmp_path, _records(0, walls, 1_000, *samples), _records(1, walls, held))
    assert seen.late_ms == pytest.approx(0.0)


def test_collectives_are_told_by_line_and_by_the_rank_that_waits_least_in_them(tmp_path: Path) -> None:
    def calls(us: int) -> list[dict[str, Any]]:
        kinds = (("dist.barrier", 1), ("dist.gradients", -1), ("save", 1))
        return [
            site(1, 48),
            *[{"k": "call", "kind": k, "site": s, "count": 100, "us": us, "step": N} for k, s in kinds],
        ]

    seen = _compared(
        tmp_path, _records(0, 30_000, 1_000, *calls(100_000)), _records(1, 30_000, 21_000, *calls(2_100_000))
    )
    barrier, gradients = sorted(seen.collectives, key=lambda call: call.kind)
    assert (barrier.kind, gradients.kind, gradients.site) == ("barrier", "gradients", None)
    assert barrier.site is not None and barrier.site.line == 48
    assert barrier.least_ms == pytest.approx(1.0) and barrier.calls_per_step == pytest.approx(1.0)


def test_the_reduced_model_is_the_first_that_a_rank_tells(tmp_path: Path) -> None:
    records = _records(0, 30_000, 1_000)
    records.append({"k": "ddp", "bucket_bytes": [4096, 8192], "broadcast_buffers": 1})
    seen = _compared(tmp_path, records, _records(1, 30_000, 2_000))
    assert seen.model is not None and seen.model.bucket_bytes == (4096, 8192)


def test_the_number_that_torch_gives_a_rank_counts_before_the_environments(tmp_path: Path) -> None:
    records = [_records(0, 30_000, us) for us in (9_000, 1_000)]
    for rank, (_, told, _) in enumerate(records):
        told.update(rank=rank, world_size=2)
    assert _compared(tmp_path, *records).late == 1


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ([(0, 1, 1_000)], "one rank"),
        ([(0, 2, 1_000)], "no other rank"),
        ([(0, 2, 0), (1, 2, 0)], "not seen to wait"),
        ([(0, 2, 1_000), (0, 2, 2_000)], "several processes"),
    ],
)
def test_what_cannot_be_compared_says_why(tmp_path: Path, ranks: list[tuple[int, int, int]], why: str) -> None:
    built = _built(tmp_path, *[_records(rank, 10_000, us, world=world) for rank, world, us in ranks])
    assert isinstance(built, Missing) and why in built.reason


def test_on_a_gpu_the_hosts_waits_say_nothing(tmp_path: Path) -> None:
    ranks = [_records(rank, 10_000, 1_000) for rank in (0, 1)]
    ranks[0][1] = {**ranks[0][1], "cuda": {"total_bytes": 1, "allocator": "native"}}
    built = _built(tmp_path, *ranks)
    assert isinstance(built, Missing) and "CUDA" in built.reason


def test_the_late_rank_is_the_one_that_is_judged(tmp_path: Path) -> None:
    """Its steps are no longer than those of the others, a little shorter here."""
    for rank, (wall, wait) in enumerate(((30_010, 26_000), (30_000, 1_000))):
        write(tmp_path, *_records(rank, wall, wait), pid=100 + rank)
    run = build_run(read(write_run(tmp_path)), MACHINE, HostRecording((), (), ()))
    assert run.slowest.rank == 1
    assert run.ranks[0].communication == run.ranks[1].communication


def _stopped(every_us: int | None, mhz: float | None, cpus: float = 1.0) -> list[dict[str, Any]]:
    """Counters of a rank whose steps of 30 ms are stopped for so long, and keep CPUs busy while they run."""
    running = 30_000 - (every_us or 0)
    return [
        sample(step, utime_us=int(step * running * cpus), throttled_us=every_us and step * every_us, clock_mhz=mhz)
        for step in (20, 50, 80)
    ]


def test_what_holds_one_rank_back_is_told_of_it_alone(tmp_path: Path) -> None:
    records = [
        _records(0, 30_000, 13_000, *_stopped(0, 3_400.0)),
        _records(1, 30_000, 1_000, *_stopped(12_000, 2_900.0)),
    ]
    usual, stopped = _compared(tmp_path, *records).ranks
    assert (usual.throttled_ms, stopped.throttled_ms) == (0.0, pytest.approx(12.0))
    assert (usual.clock_mhz, stopped.clock_mhz) == (3_400.0, pytest.approx(2_900.0))


def test_threads_that_are_stopped_side_by_side_count_once(tmp_path: Path) -> None:
    two_cpus = [one | {"throttled_us": 2 * one["throttled_us"]} for one in _stopped(12_000, None, cpus=2.0)]
    records = [_records(0, 30_000, 13_000), _records(1, 30_000, 1_000, *two_cpus)]
    seen = _compared(tmp_path, *records)
    assert seen.late_rank.throttled_ms == pytest.approx(12.0)
    assert (seen.others[0].throttled_ms, seen.others[0].clock_mhz) == (0.0, 0.0), "no counters, no claim"


# ---------------------------------------------------------------------------------------------------------
# Ranks that are late by chance, or seldom


def _random_work(seed: int) -> tuple[list[int], list[int]]:
    """Waits of two ranks whose own work varies by a third from step to step, with an even neighbour for a while."""
    rng = np.random.default_rng(seed)
    own = rng.lognormal(0, 0.3, (2, N)) * 6_000
    first = rng.integers(0, N - 25)
    own[rng.integers(0, 2), first : first + 25] += 3_000
    waits = own.max(axis=0) - own + 1_000
    return [wait.astype(int).tolist() for wait in waits]  # type: ignore[return-value]


def test_ranks_with_random_work_have_no_late_one(tmp_path: Path) -> None:
    claimed = 0
    for seed in range(20):
        (folder := tmp_path / str(seed)).mkdir()
        one, other = _random_work(seed)
        seen = _compared(folder, _records(0, 10_000, one), _records(1, 10_000, other))
        claimed += seen.late_low_ms > 0.05 * 10
    assert claimed <= 1


def test_a_rank_that_is_late_in_every_step_is_found_beside_such_work(tmp_path: Path) -> None:
    for seed in range(5):
        (folder := tmp_path / str(seed)).mkdir()
        one, other = _random_work(seed)
        later = [wait + 4_000 for wait in one]
        seen = _compared(folder, _records(0, 14_000, later), _records(1, 14_000, other))
        assert seen.late == 1 and seen.late_low_ms > 0.05 * 14


def test_a_barrier_once_an_epoch_makes_nobody_late(tmp_path: Path) -> None:
    held = [9_000 if step % 25 == 24 else 0 for step in range(N)]
    first = _records(0, [10_000 + us for us in held], [1_000 + us for us in held])
    second = _records(1, [10_000 + us for us in held], [1_050 + us for us in held])
    assert _compared(tmp_path, first, second).late_low_ms < 0.05 * 10


def test_a_rank_that_logs_now_and_then_is_late_by_as_little_as_that_takes(tmp_path: Path) -> None:
    logs = [2_000 if step % 20 == 19 else 30 for step in range(N)]
    first = _records(0, [10_000 + us for us in logs], 1_000, logging_us=logs)
    second = _records(1, [10_000 + us for us in logs], [1_000 + us for us in logs])
    seen = _compared(tmp_path, first, second)
    assert seen.late == 0 and seen.late_ms == pytest.approx(0.13, rel=0.1)
    assert seen.late_low_ms < 0.05 * 10


# ---------------------------------------------------------------------------------------------------------
# Ranks that take turns, and nodes


def _by_turns(own_us: np.ndarray[Any, Any]) -> list[list[Any]]:
    """Ranks with these own times, microseconds, one row each: all steps end together; beyond usual it is backward."""
    walls = own_us.max(axis=0) + 1_000
    usual = int(np.median(own_us))
    return [
        _records(rank, walls.tolist(), (walls - own).tolist(), world=len(own_us), backward_us=(own - usual).tolist())
        for rank, own in enumerate(own_us)
    ]


@pytest.mark.parametrize("ranks", [3, 4])
def test_ranks_that_straggle_by_turns_are_told_with_what_they_do_then(ranks: int, tmp_path: Path) -> None:
    own = np.full((ranks, N), 5_000)
    for turn in range(3):
        own[turn % ranks, turn::3] += 15_000
    seen = _compared(tmp_path, *_by_turns(own))
    assert seen.turns is not None and seen.late_low_ms < 0.5
    assert set(seen.turns.ranks) == set(range(min(3, ranks))) and seen.turns.share == pytest.approx(1.0)
    assert seen.turns.ms == pytest.approx(15.0) and seen.turns.low_ms == pytest.approx(15.0)
    assert seen.turns.part == "backward" and seen.turns.part_ms == pytest.approx(15.0)


def test_two_of_four_ranks_that_straggle_by_turns_are_the_late_ones(tmp_path: Path) -> None:
    own = np.full((4, N), 5_000)
    own[1, ::2] += 15_000
    own[2, 1::2] += 15_000
    seen = _compared(tmp_path, *_by_turns(own))
    assert {seen.late, *seen.beside} == {1, 2} and seen.late_low_ms == pytest.approx(15.0)
    assert seen.turns is not None and set(seen.turns.ranks) == {1, 2}
    assert seen.late_share == pytest.approx(1.0)


def test_both_of_two_ranks_that_straggle_have_no_late_one(tmp_path: Path) -> None:
    own = np.full((2, N), 5_000)
    own[0, ::2] += 15_000
    own[1, 1::2] += 15_000
    seen = _compared(tmp_path, *_by_turns(own))
    assert seen.late_low_ms == 0.0 and seen.turns is not None
    assert seen.turns.ms == pytest.approx(15.0) and set(seen.turns.ranks) == {0, 1}


def test_steps_that_are_long_on_all_ranks_are_nobodys_turn(tmp_path: Path) -> None:
    own = np.full((4, N), 5_000)
    own[:, ::5] += 15_000
    assert _compared(tmp_path, *_by_turns(own)).turns is None


def test_of_work_that_varies_by_chance_little_is_straggling(tmp_path: Path) -> None:
    own = (np.random.default_rng(1).lognormal(0, 0.3, (4, N)) * 6_000).astype(int)
    seen = _compared(tmp_path, *_by_turns(own))
    assert seen.turns is None or seen.turns.low_ms < 0.05 * 10


def _on(node: str, records: list[Any]) -> list[Any]:
    records[1]["environment"] |= {"GROUP_RANK": node}
    return records


def test_a_node_whose_ranks_are_all_late_is_told_as_one(tmp_path: Path) -> None:
    waits = (20_000, 20_500, 1_000, 1_200)
    ranks = [_on(str(rank // 2), _records(rank, 30_000, us, world=4)) for rank, us in enumerate(waits)]
    seen = _compared(tmp_path, *ranks)
    assert [times.node for times in seen.ranks] == ["0", "0", "1", "1"]
    assert seen.late_node == "1" and (seen.late, seen.beside) == (2, (3,))
    assert seen.late_share == 1.0 and seen.late_ms == pytest.approx(19.0)


def test_long_runs_are_looked_at_in_blocks_of_steps() -> None:
    own = np.full((4, 1_201), 5.0)
    for turn in range(3):
        own[turn, turn::3] += 15.0
    parts = [{"backward": own[row] - 5.0, "other": np.full(1_201, 5.0)} for row in range(4)]
    seen = lateness.turns(own, [10, 11, 12, 13], lambda row: parts[row])
    assert seen is not None and sorted(seen.ranks) == [10, 11, 12]
    assert (seen.ms, seen.part_ms, seen.part) == (pytest.approx(15.0), pytest.approx(15.0), "backward")


def test_ranks_of_two_nodes_that_are_late_are_no_node(tmp_path: Path) -> None:
    waits = (20_000, 1_200, 1_000, 20_500)
    ranks = [_on(str(rank // 2), _records(rank, 30_000, us, world=4)) for rank, us in enumerate(waits)]
    seen = _compared(tmp_path, *ranks)
    assert seen.late_node == "" and (seen.late, seen.beside) == (2, (1,))


@pytest.mark.parametrize(
    ("places", "names"),
    [
        ((("a", "x", ""), ("a", "x", "")), ["", ""]),
        ((("a", "x", ""), ("b", "y", "")), ["a", "b"]),
        ((("a", "x", "0"), ("a", "x", "1")), ["a (0)", "a (1)"]),
        ((("a", "0123456789", ""), ("a", "9876543210", "")), ["a (01234567)", "a (98765432)"]),
        ((("", "", "0"), ("", "", "1")), ["0", "1"]),
    ],
)
def test_nodes_have_the_names_that_tell_them_apart(
    tmp_path: Path, places: Sequence[tuple[str, str, str]], names: list[str]
) -> None:
    processes = []
    for pid, (host, boot, number) in enumerate(places, 100):
        told = settings(environment={"GROUP_RANK": number} if number else {})
        one = recorded(tmp_path, told, pid=pid)
        processes.append(replace(one, header=replace(one.header, host=host, boot=boot)))
    assert nodes(processes) == names


# ---------------------------------------------------------------------------------------------------------
# Divided models


def _dividing(facts: Sequence[dict[str, Any]], waits_us: Sequence[int]) -> list[list[Any]]:
    return [
        _records(rank, 30_000, us, {"k": "division", **told}, world=len(facts), backward_us=25_000 - us)
        for rank, (told, us) in enumerate(zip(facts, waits_us, strict=True))
    ]


def test_the_last_stage_of_a_pipeline_is_never_late(tmp_path: Path) -> None:
    facts = [{"stages": [stage], "of_stages": 2} for stage in (0, 1)]
    seen = _compared(tmp_path, *_dividing(facts, (20_000, 2_000)))
    assert not seen.is_compared and seen.others == () and seen.turns is None
    assert (seen.late, seen.late_ms, seen.late_low_ms) == (1, 0.0, 0.0), "it bounds the step, and is judged"
    assert seen.stages == 2 and seen.exposed_ms == pytest.approx(2.0)


def test_parts_of_one_layer_are_not_compared(tmp_path: Path) -> None:
    seen = _compared(tmp_path, *_dividing([{"tensor": "0,1"}] * 2, (20_000, 2_000)))
    assert not seen.is_compared and seen.late_low_ms == 0.0


def test_only_ranks_of_one_data_parallel_group_are_compared(tmp_path: Path) -> None:
    # Two stages, two copies of each: the second stage has less to wait for, its copy on rank 3 least.
    facts = [{"data": data, "stages": [int(data[0])], "of_stages": 2} for data in ("0,2", "1,3", "0,2", "1,3")]
    seen = _compared(tmp_path, *_dividing(facts, (20_000, 9_000, 19_900, 2_000)))
    assert [times.alike for times in seen.ranks] == [0, 1, 0, 1]
    assert (seen.late, seen.beside, seen.late_ms) == (3, (), pytest.approx(7.0))
    assert [times.rank for times in seen.others] == [1]


def test_ranks_that_average_all_gradients_are_compared_whatever_else_they_tell(tmp_path: Path) -> None:
    facts = [{"data": "0,1", "shard_bytes": [1024, 2048], "resharded": 2}, {}]
    seen = _compared(tmp_path, *_dividing(facts, (2_000, 20_000)))
    assert seen.is_compared and seen.late == 0 and seen.late_ms == pytest.approx(18.0)
    assert (seen.shard_bytes, seen.resharded) == ((1024, 2048), 2)
