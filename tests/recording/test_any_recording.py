"""Whatever a run directory holds, reading it gives a recording or a clear error, never another exception."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.outcomes import OutcomeKind
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.reader import read
from perfdoctor.trials.judge import judge

DEMO = Path(__file__).parent.parent / "recordings" / "demo"
(PROCESS,) = DEMO.glob("process-*.jsonl")
LINES = PROCESS.read_text().splitlines()
RECORDS = [json.loads(line) for line in LINES]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def judged(process: bytes) -> None:
    """The demo's recording with these bytes in its process file."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        shutil.copytree(DEMO, run)
        (run / PROCESS.name).write_bytes(process)
        try:
            diagnosis = judge(RunDirectory(run), Config())
        except PerfdoctorError as error:
            assert error.advice
        else:
            crashed = [check for check in diagnosis.checks if check.outcome.kind is OutcomeKind.CRASHED]
            assert crashed == []


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200), st.integers(0, len(LINES)))
def test_bytes_between_the_lines_are_problems_and_nothing_else(rubbish: bytes, at: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        shutil.copytree(DEMO, run)
        lines = [line.encode() for line in LINES]
        (run / PROCESS.name).write_bytes(b"\n".join([*lines[:at], rubbish, *lines[at:], b""]))
        (process,) = read(RunDirectory(run)).processes
        assert len(process.steps) > 0


@pytest.mark.parametrize("entry", [9.223372036854776e18, -9.223372036854776e18])
def test_a_column_of_a_number_beyond_all_is_no_column(entry: float) -> None:
    records = [{**one, "checkpoint_us": entry} if "checkpoint_us" in one else one for one in RECORDS]
    assert records != list(RECORDS)
    judged(b"".join(json.dumps(record).encode() + b"\n" for record in records))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_field_of_another_kind_loses_its_record_at_most(data: st.DataObject) -> None:
    records = list(RECORDS)
    index = data.draw(st.integers(0, len(records) - 1))
    name = data.draw(st.sampled_from(sorted(records[index])))
    records[index] = {**records[index], name: data.draw(ANY)}
    judged(b"".join(json.dumps(record).encode() + b"\n" for record in records))


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.integers(0, PROCESS.stat().st_size))
def test_a_file_cut_anywhere_is_judged_as_far_as_it_goes(size: int) -> None:
    judged(PROCESS.read_bytes()[:size])


@pytest.mark.parametrize("name", ["machine.json", "run.json", "host.jsonl"])
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(rubbish=st.one_of(st.binary(max_size=50), ANY.map(lambda value: json.dumps(value).encode())))
def test_another_file_in_place_of_one(name: str, rubbish: bytes) -> None:
    with tempfile.TemporaryDirectory() as place:
        run = Path(place, "run")
        shutil.copytree(DEMO, run)
        (run / name).write_bytes(rubbish)
        try:
            judged_anyway = judge(RunDirectory(run), Config())
        except PerfdoctorError as error:
            assert error.advice
        else:
            assert judged_anyway.checks
