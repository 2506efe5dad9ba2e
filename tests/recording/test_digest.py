"""A digest says the same as the recordings that it was made from, in fewer bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from perfdoctor.cli import app
from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.errors import PerfdoctorError
from perfdoctor.recording.digest import Digest
from perfdoctor.recording.digesting import world_size, write_digest
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.recording.model import COLUMNS
from perfdoctor.recording.packing import pack, unpack
from perfdoctor.recording.reader import read
from perfdoctor.report.jsonreport import render_json
from perfdoctor.trials.judge import judge

KEPT = sorted(path for path in (Path(__file__).parent.parent / "recordings").iterdir() if path.is_dir())
TWO_RANKS = next(path for path in KEPT if path.name == "two_ranks")


def _copied(run: Path, directory: Path) -> RunDirectory:
    shutil.copytree(run, directory / "run")
    return RunDirectory(directory / "run")


def _only_digest(run: Path, directory: Path) -> RunDirectory:
    """The run without the files of its processes."""
    copied = _copied(run, directory)
    assert write_digest(copied) is not None
    for path in copied.process_files():
        path.unlink()
    return copied


def _long(directory: Path, steps: int) -> RunDirectory:
    """The run of two ranks with so many steps: those that it has, again and again, with noise."""
    copied = _copied(TWO_RANKS, directory)
    rng = np.random.default_rng(0)
    for path in copied.process_files():
        records = [json.loads(line) for line in path.read_text().splitlines()]
        blocks = [record for record in records if record["k"] == "steps" and record["first"] > 60]
        if not blocks:
            continue
        kept = [
            record for record in records if record["k"] not in ("steps", "batches") or record.get("first", 61) <= 60
        ]
        kept = [record for record in kept if record["k"] != "steps" or record["first"] <= 60]
        first = max((record["first"] + record["n"] for record in kept if record["k"] == "steps"), default=0)
        now = max(record["t"] for record in kept if record["k"] == "steps")
        while first < steps:
            block = blocks[rng.integers(len(blocks))]
            n = block["n"]
            again = {name: value for name, value in block.items() if name != "marked"} | {"first": first}
            for name, value in block.items():
                if isinstance(value, list) and name.endswith("_us"):
                    again[name] = [round(us * noise) for us, noise in zip(value, rng.normal(1, 0.02, n), strict=True)]
            walls = again["wall_us"] if isinstance(again["wall_us"], list) else [again["wall_us"]] * n
            now += 1000 * sum(walls)
            kept.append(again | {"t": now})
            kept.append({"k": "sample", "t": now, "step": first + n, "utime_us": now // 1000, "stime_us": now // 9000})
            first += n
        path.write_text("".join(json.dumps(record) + "\n" for record in kept))
    return copied


def _gains(diagnosis: Diagnosis) -> dict[str, tuple[float, float]]:
    return {found.id: (found.savings.low_ms, found.savings.high_ms) for found in diagnosis.ranked}


@pytest.mark.parametrize("run", KEPT, ids=lambda run: run.name)
def test_the_diagnosis_from_a_digest_equals_that_from_the_recordings(run: Path, tmp_path: Path) -> None:
    whole = judge(_copied(run, tmp_path / "whole"), Config())
    digested = judge(_only_digest(run, tmp_path / "digested"), Config())
    assert whole.ranked, "a recording without a finding shows little"
    assert _gains(digested) == _gains(whole)
    assert render_json(digested) == render_json(whole), "and every number of the report"


def test_a_rank_of_ten_thousand_steps_takes_a_hundred_kibibytes_and_is_judged_the_same(tmp_path: Path) -> None:
    run = _long(tmp_path, 10_000)
    whole = judge(run, Config())
    path = write_digest(run)
    assert path is not None
    size, recorded = path.stat().st_size, sum(file.stat().st_size for file in run.process_files())
    assert size <= 2 * (100 << 10) < recorded / 4
    for file in run.process_files():
        file.unlink()
    digested = judge(run, Config())
    assert len(read(run).ranks[0].steps) >= 10_000
    assert [found.id for found in digested.ranked] == [found.id for found in whole.ranked]
    for name, gain in _gains(digested).items():
        assert gain == pytest.approx(_gains(whole)[name], rel=0.01, abs=0.01)


def test_a_digest_from_before_a_column_was_written_has_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setitem(COLUMNS, "fetches", COLUMNS["fetches"][:-1])
        run = _only_digest(KEPT[0], tmp_path)
    fetches = read(run).ranks[0].fetches
    assert len(fetches) > 0
    assert fetches["loader"].tolist() == [-1] * len(fetches)


def test_where_the_files_are_there_they_are_read(tmp_path: Path) -> None:
    run = _copied(TWO_RANKS, tmp_path)
    before = read(run)
    path = write_digest(run)
    assert path is not None
    path.write_bytes(path.read_bytes()[:-1])
    assert [process.header for process in read(run).processes] == [process.header for process in before.processes]


def test_a_damaged_digest_is_a_problem_of_the_recording(tmp_path: Path) -> None:
    run = _only_digest(TWO_RANKS, tmp_path)
    (path,) = run.digest_files()
    path.write_bytes(path.read_bytes()[:-1])
    recording = read(run)
    assert not recording.processes
    assert recording.problems == (f"{path.name} cannot be read: its end is missing",)


def test_another_versions_digest_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "digest-a.bin"
    path.write_bytes(b'{"schema": "perfdoctor.digest/9", "index": 0, "parts": 0}\n')
    with pytest.raises(PerfdoctorError, match="digest/9"):
        Digest(path)


@pytest.mark.parametrize("place", range(40, 4000, 397))
def test_a_byte_that_changed_is_a_problem_and_nothing_worse(place: int, tmp_path: Path) -> None:
    run = _only_digest(TWO_RANKS, tmp_path)
    (path,) = run.digest_files()
    data = bytearray(path.read_bytes())
    data[place * len(data) // 4000] ^= 0x55
    path.write_bytes(bytes(data))
    try:
        judge(run, Config())
    except PerfdoctorError as error:
        assert path.name in str(error)


def test_the_world_is_as_large_as_torch_says(tmp_path: Path) -> None:
    assert world_size(_copied(TWO_RANKS, tmp_path)) == 2
    assert world_size(RunDirectory(tmp_path)) == 1


def test_the_command_writes_it(tmp_path: Path) -> None:
    run = _copied(TWO_RANKS, tmp_path)
    assert CliRunner().invoke(app, ["digest", str(run.path)]).exit_code == 0
    (path,) = run.digest_files()
    assert {entry.role for entry in Digest(path).entries} == {"rank", "worker", "helper"}


# ---------------------------------------------------------------------------------------------------------
# Columns


@pytest.mark.parametrize(
    "column",
    [[], [7], [7, 7, 7], [0, 1, 2, 3], [-1, 300, 70_000, 1 << 40, -(1 << 50)], list(range(0, 9000, 9))],
    ids=["empty", "one", "constant", "counting", "wide", "even"],
)
def test_a_column_comes_back_as_it_was(column: list[int]) -> None:
    packed = pack(np.array(column, np.int64))
    assert unpack(packed).tolist() == column


def test_rounding_keeps_sums_and_zeros() -> None:
    rng = np.random.default_rng(1)
    column = rng.integers(1_000, 2_000, 5_000) * (rng.random(5_000) < 0.5)
    back = unpack(pack(column, unit=64))
    assert abs(back.sum() - column.sum()) <= 64
    assert (np.abs(np.cumsum(back) - np.cumsum(column)) <= 64).all()
    assert not back[column == 0].any()


def test_a_column_that_is_cut_is_refused() -> None:
    packed = pack(np.random.default_rng(2).integers(0, 1000, 100))
    with pytest.raises(ValueError, match="column of 100"):
        unpack(type(packed)(packed.n, packed.least, packed.first, packed.unit, packed.width, packed.planes[:20]))
