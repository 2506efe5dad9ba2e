"""How past predictions are kept and summed up."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from perfdoctor.diagnosis.measured import Gain, Range, Trial, Verdict
from perfdoctor.trials import history

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=timezone.utc)


def trial(low: float, high: float, measured: float) -> Trial:
    return Trial(
        "lamp", Verdict.HELPED, Gain(measured, measured * 0.9, measured * 1.1, 8), Range(low, high), keep="x = 1"
    )


def test_the_typical_error_is_a_median_of_both_directions() -> None:
    measured = [1.1, 1 / 1.1, 1.2, 1 / 1.2, 1.3]
    lines = history.records([trial(1.0, 1.0, factor) for factor in measured], NOW)
    error, count = history.typical_error(lines)
    assert count == 5 and error == pytest.approx(0.2, abs=0.001)


def test_the_middle_of_the_range_is_what_was_predicted() -> None:
    lines = history.records([trial(1.5, 6.0, 3.0)] * 5, NOW)
    assert history.typical_error(lines) == (pytest.approx(0.0), 5)


def test_few_trials_are_not_typical() -> None:
    assert history.typical_error(history.records([trial(1.0, 1.0, 1.5)] * 4, NOW)) == (None, 4)


def test_only_the_latest_count() -> None:
    old, new = [trial(1.0, 1.0, 9.0)] * 60, [trial(1.0, 1.0, 1.05)] * 50
    error, count = history.typical_error(history.records([*old, *new], NOW))
    assert (count, error) == (50, pytest.approx(0.05, abs=0.001))


def test_lines_that_are_no_records_are_passed_over() -> None:
    lines = history.records([trial(1.0, 1.0, 1.1)] * 5, NOW)
    junk = ["", "{", "[]", json.dumps({"low": 1}), json.dumps({"low": 0, "high": 1, "measured": 1})]
    assert history.typical_error([*junk, *lines])[1] == 5


def test_a_trial_without_prediction_or_result_leaves_no_line() -> None:
    lone = Trial("lamp", Verdict.NOT_TRIED, predicted=Range(1, 2), reason="no time")
    unpredicted = Trial("lamp", Verdict.HELPED, Gain(1.5, 1.4, 1.6, 8))
    bound = replace(trial(1.0, 2.0, 1.5), keep="")
    assert history.records([lone, unpredicted, bound], NOW) == []


def test_the_file_follows_the_xdg_directory(tmp_path: Path) -> None:
    assert history.history_file({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "perfdoctor/predictions.jsonl"
    assert history.history_file({"HOME": "/home/ann"}) == Path("/home/ann/.local/state/perfdoctor/predictions.jsonl")
    relative = history.history_file({"XDG_STATE_HOME": "state", "HOME": "/home/ann"})
    assert relative == Path("/home/ann/.local/state/perfdoctor/predictions.jsonl"), "the specification ignores it"


def test_what_is_appended_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "predictions.jsonl"
    history.append(path, history.records([trial(1.0, 1.2, 1.1)] * 5, NOW))
    assert history.read(path)[1] == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    path = tmp_path / "state" / "predictions.jsonl"
    history.append(path, ["{}"])
    assert history.read(path) == (None, 0)
