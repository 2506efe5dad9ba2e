"""Checkpoints that the loop waits for."""

from __future__ import annotations

import pytest
from ill_runs.checkpoints import HELD, SAVE_LINE, checkpoints, in_every_step, scratch_files
from perfdoctor.checks.checkpoint_io import CHECK
from samples import asked, healthy, is_clear, number, with_

from perfdoctor.diagnosis.findings import Part, Severity
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.evidence.model import Missing, Site
from perfdoctor.report import wording

_examined, _found = asked(CHECK)


def test_frequent_checkpoints_are_found_with_their_line_and_rhythm() -> None:
    finding = _found(checkpoints())
    assert finding.id == "PD14.frequent-checkpoints" and finding.severity is Severity.WARNING
    assert finding.location is not None and finding.location.line == SAVE_LINE.line
    assert number(finding, "cost_ms") == pytest.approx(5.0) and number(finding, "every") == 10.0
    assert finding.savings.part is Part.EPOCH


ASKS, LIBRARY = Site("train.py", 60, "train"), Site("train.py", 70, "main", "trainer.py:save")


def test_what_a_helper_saves_is_told_where_the_loop_asks_for_it() -> None:
    held = with_(HELD, asked_at=ASKS)
    assert _found(checkpoints(contents=held)).location.line == ASKS.line  # type: ignore[union-attr]
    of_a_library = checkpoints(contents=held, site=LIBRARY)
    assert _found(of_a_library).location.line == LIBRARY.line  # type: ignore[union-attr]


def test_they_may_still_cost_two_per_cent_after_the_fix() -> None:
    finding = _found(checkpoints())
    assert number(finding, "wanted") == 100  # 50 ms in 100 steps of 25 ms
    assert finding.savings.low_ms == pytest.approx(5.0 - 0.5) and finding.savings.high_ms == pytest.approx(5.5)
    assert "step % 100 == 0" in finding.fix.code


def test_saves_that_get_rarer_are_an_opportunity_of_what_the_later_ones_cost() -> None:
    finding = _found(checkpoints(late_saves=4))
    assert finding.severity is Severity.NOTE and "4 of 20 in the later half" in wording.filled(finding).reasoning
    assert (finding.savings.low_ms, finding.savings.high_ms) == (0.0, pytest.approx(5.5 * 2 * 4 / 20))


def test_one_that_is_in_every_step_is_a_part_of_it() -> None:
    finding = _found(in_every_step())
    assert finding.savings.part is Part.OTHER
    assert finding.savings.high_ms == pytest.approx(20.0) and finding.severity is Severity.ERROR


def test_many_files_in_every_step_are_no_checkpoints() -> None:
    finding = _found(scratch_files())
    assert finding.id == "PD14.files-in-each-step" and number(finding, "files") == 9
    assert finding.location is not None and finding.location.line == SAVE_LINE.line
    # The 20 ms that they take to write, at least most of them; to read them again is not timed.
    assert finding.savings.low_ms == pytest.approx(16.0) and finding.savings.high_ms > 20.0
    assert _found(scratch_files(2.0)).id == "PD14.frequent-checkpoints", "a model and its optimizer"


@pytest.mark.parametrize(("save_ms", "count"), [(13.5, 0), (13.7, 1)])
def test_checkpoints_count_from_a_twentieth_of_the_step_on(save_ms: float, count: int) -> None:
    assert len(_examined(checkpoints(save_ms)).findings) == count


def test_one_checkpoint_an_epoch_is_clear_with_its_cost() -> None:
    outcome = _examined(checkpoints(every=200.0, saves=4, steps=800))
    assert is_clear(outcome) and number(outcome, "cost_share") == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize(
    ("saves", "every", "save_ms"),
    [(1, 400.0, 80.0), (4, 1_500.0, 900.0), (3, 120.0, 12.0)],
    ids=["one at the end", "large ones, an epoch apart", "small ones of the best model, at few evaluations"],
)
def test_checkpoints_that_protect_what_they_cost_are_clear(saves: int, every: float, save_ms: float) -> None:
    outcome = _examined(checkpoints(save_ms, every, saves=saves, steps=round(saves * every)))
    assert is_clear(outcome) and number(outcome, "cost_share") < 0.03


def test_how_often_a_job_saves_that_saved_once_is_not_known() -> None:
    outcome = _examined(checkpoints(save_ms=500.0, every=200.0, saves=1, steps=200))
    assert outcome.kind is OutcomeKind.CANNOT_TELL and "one of 200 steps" in outcome.reason
    assert is_clear(_examined(checkpoints(save_ms=50.0, every=200.0, saves=1, steps=200)))


def test_what_need_not_be_in_it_is_told() -> None:
    held = with_(HELD, storage_bytes=60_000_000, others=("Images",))
    reasoning = _found(checkpoints(contents=held)).reasoning
    assert "views of {storage_bytes}" in reasoning and "{others}" in reasoning and "optimizer's" in reasoning
    plain = with_(HELD, optimizer_bytes=0)
    assert "views" not in _found(checkpoints(contents=plain)).reasoning


def test_time_in_fsync_is_told() -> None:
    finding = _found(checkpoints(fsync_ms=30.0, fsyncs_per_save=1.0))
    assert "{fsync_ms}" in finding.reasoning and number(finding, "fsync_ms") == 30.0
    assert "{fsync_ms}" not in _found(checkpoints()).reasoning


STAGED = {"library": "torch.serialization", "us": 50_000, "cpu_us": 30_000, "copied_bytes": 610_000, "copied_us": 1_000}
"""Of 50 ms, 20 in which the disk was waited for; a copy of 6.1 MB takes 10."""


def test_a_thread_that_writes_a_copy_is_offered_with_what_it_would_save() -> None:
    finding = _found(checkpoints(contents=with_(HELD, **STAGED)))
    (other,) = finding.fix.alternatives
    assert other.remedy == "checkpoint.background" and finding.fix.remedies == ("checkpoint.skipped",)
    assert (other.low_ms, other.high_ms) == (pytest.approx(1.0), pytest.approx(4.0))
    assert number(finding, "stage_ms") == pytest.approx(10.0) and "{stage_ms} of {save_ms}" in finding.fix.text
    busy = _found(checkpoints(contents=with_(HELD, **STAGED | {"cpu_us": 50_000}))).fix.alternatives
    assert busy[0].low_ms == 0.0


@pytest.mark.parametrize(
    "changes",
    [{"library": "safetensors.torch"}, {"device_bytes": 6_100_000}, {"copied_us": 6_000}, {"copied_us": 0}],
    ids=["no torch.save", "on a device", "a copy takes longer", "not timed"],
)
def test_no_thread_is_offered_where_it_could_not_be_tried_or_would_not_pay(changes: dict[str, object]) -> None:
    finding = _found(checkpoints(contents=with_(HELD, **STAGED | changes)))
    assert finding.fix.alternatives == () and "in a thread" in finding.fix.text


def test_distributed_checkpoints_are_told_their_own_way_to_write_in_the_background() -> None:
    finding = _found(checkpoints(contents=with_(HELD, library="torch.distributed.checkpoint.state_dict_saver")))
    assert "async_save" in finding.fix.text and "thread" not in finding.fix.text


def test_a_checkpoint_that_ray_copies_to_its_storage_may_be_copied_in_a_thread() -> None:
    held = with_(HELD, library="ray.train.v2._internal.execution.storage", tensor_bytes=0, storage_bytes=0)
    finding = _found(checkpoints(contents=held))
    assert "CheckpointUploadMode.ASYNC" in finding.fix.text and "torch.save" not in finding.fix.code
    assert "optimizer's state" not in finding.reasoning


def test_copies_from_a_device_are_told_apart_from_writing() -> None:
    finding = _found(checkpoints(copy_ms=30.0, copy_bytes=6_100_000))
    assert "{copy_ms} of that copying {copy_bytes} from the device" in finding.reasoning
    assert number(finding, "copy_ms") == 30.0 and number(finding, "stage_ms") == 30.0
    assert "{copy_ms}" not in _found(checkpoints()).reasoning


def test_a_file_that_grows_is_left_to_slower_over_time() -> None:
    assert is_clear(_examined(checkpoints(early_bytes=100_000, late_bytes=900_000)))


@pytest.mark.parametrize(("trainer", "word"), [("lightning", "every_n_train_steps"), ("transformers", "save_steps")])
def test_a_trainer_is_told_in_its_own_words(trainer: str, word: str) -> None:
    assert f"{word}=100" in _found(with_(checkpoints(), job__trainer=trainer)).fix.code


@pytest.mark.parametrize("part", ["step", "checkpoints"])
def test_without_steps_or_checkpoints_nothing_is_claimed(part: str) -> None:
    outcome = _examined(with_(healthy(), **{part: Missing("it was not seen")}))
    assert outcome.kind is OutcomeKind.CANNOT_TELL and "it was not seen" in outcome.reason


def test_where_views_of_much_more_are_saved_clones_come_first() -> None:
    """A field of 98 kB out of a history of 79 MB: the whole history is written each time."""
    held = with_(HELD, tensor_bytes=98_304, storage_bytes=78_692_352, unchanged_bytes=78_000_000, unchanged="recent")
    found, often = _found(checkpoints(contents=held)), _found(checkpoints())
    assert found.id == "PD14.whole-storages" and found.savings.low_ms < often.savings.low_ms
    fix = found.fix
    assert fix.text.startswith("Save clones") and ".clone()" in fix.code
    assert "clone" not in _found(checkpoints()).fix.code


BUFFER = Site("model.py", 30, "")


@pytest.mark.parametrize(("at", "line"), [(BUFFER, 30), (Missing("no line"), SAVE_LINE.line)])
def test_what_never_changes_is_to_be_left_out_first_at_the_line_that_registers_it(
    at: Site | Missing, line: int
) -> None:
    """123 of 126 MB: saving as often costs half of it without them."""
    size = {"tensor_bytes": 126_000_000, "storage_bytes": 126_000_000}
    held = with_(HELD, **size, unchanged_bytes=123_000_000, unchanged="features", unchanged_at=at)
    found, often = _found(checkpoints(contents=held)), _found(checkpoints())
    assert found.id == "PD14.unchanging-content" and found.location is not None and found.location.line == line
    assert (
        found.fix.text.startswith("Leave out what never changes (`{unchanged}`)")
        and "persistent=False" in found.fix.code
    )
    assert 0 < found.savings.low_ms < 0.5 * often.savings.low_ms and found.savings.high_ms < often.savings.high_ms


def test_where_most_of_it_changes_that_is_a_note() -> None:
    held = with_(HELD, unchanged_bytes=2_000_000, unchanged="table")
    found = _found(checkpoints(contents=held))
    assert found.id == "PD14.frequent-checkpoints" and "{unchanged_bytes} of it are as they were" in found.reasoning


def test_where_a_checkpoint_is_mostly_compressed_or_read_again_that_line_is_told() -> None:
    at = Site("train.py", 81, "main")
    finding = wording.filled(_found(checkpoints(beside_ms=30.0, beside_at=at)))
    assert finding.location is not None and finding.location.line == at.line
    assert "30.0 ms of that compressing it, or reading it again" in finding.reasoning
    assert finding.fix.text.startswith("Save it as it is")
    less = _found(checkpoints(beside_ms=20.0, beside_at=at))
    assert less.location is not None and less.location.line == SAVE_LINE.line
    assert not less.fix.text.startswith("Save it as it is")


def test_files_in_each_step_whose_reading_was_timed_save_no_more_than_that() -> None:
    evidence = scratch_files()
    timed = with_(evidence, checkpoints__beside_ms=5.0)
    assert _found(timed).savings.high_ms == pytest.approx(20.0)
    assert _found(evidence).savings.high_ms > 20.0
