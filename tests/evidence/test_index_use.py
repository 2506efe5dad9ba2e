"""Classes and rows in use: from the call-site window to what a check may ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recordings import no_window, recorded, sites_window

from perfdoctor.evidence.model import IndexUse, Missing
from perfdoctor.evidence.windows import index_use

ROW = {"kind": "target", "size": 1000, "width": 0, "count": 512, "distinct": 90, "highest": 99}


def test_classes_up_to_the_highest_are_in_use(tmp_path: Path) -> None:
    found = index_use(recorded(tmp_path, sites_window(indices=[ROW])))
    assert found == (IndexUse("target", 1000, 0, 512, 90, 99),)
    assert (found[0].used, found[0].unused_share) == (100, pytest.approx(0.9))


def test_a_job_without_indices_has_none(tmp_path: Path) -> None:
    assert index_use(recorded(tmp_path, sites_window(indices=[]))) == ()


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "not reached"),
        (no_window("sites", "the job uses torch.compile"), "torch.compile"),
    ],
)
def test_what_was_not_seen_says_why(tmp_path: Path, record: dict[str, Any] | None, reason: str) -> None:
    found = index_use(recorded(tmp_path, *([record] if record else [])))
    assert isinstance(found, Missing)
    assert reason in found.reason
