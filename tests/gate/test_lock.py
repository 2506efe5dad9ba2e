"""One gate at a time, by a file where everybody may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.gate.interleaving import one_gate_at_a_time


def test_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    victim, lock = tmp_path / "notes", tmp_path / "perfdoctor-gate.lock"
    victim.write_text("dear diary")
    lock.symlink_to(victim)
    with pytest.raises(PerfdoctorError) as error, one_gate_at_a_time(lock):
        pytest.fail("a gate would run")
    assert error.value.slug == "gate-lock"
    assert victim.read_text() == "dear diary"


def test_the_second_gate_is_refused_and_the_next_is_not(tmp_path: Path) -> None:
    lock = tmp_path / "perfdoctor-gate.lock"
    refused = pytest.raises(PerfdoctorError, match=f"another gate .* {os.getpid()}")
    with one_gate_at_a_time(lock), refused, one_gate_at_a_time(lock):
        pytest.fail("two gates would run")
    with one_gate_at_a_time(lock):
        assert lock.read_text() == f"{os.getpid()}\n"
