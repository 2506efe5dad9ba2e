"""Jobs under an engine are ended with it: a word of ours, and none of the engine's about ranks that failed."""

from __future__ import annotations

import sys

import pytest
from running import JOBS, Perfdoctor

ENOUGH = ("--steps", "20")


def test_an_engine_does_not_see_its_worker_leave(perfdoctor: Perfdoctor) -> None:
    checked = perfdoctor.check(*ENOUGH, JOBS / "engine" / "driver.py")
    assert "failed" not in checked.stdout
    assert "perfdoctor: ended the job, having seen enough; Ray was ended with it" in checked.stderr
    assert checked.json["integrity"]["job_end"]["kind"] == "stopped"
    assert checked.json["anatomy"]["count"] >= 20


@pytest.mark.slow
@pytest.mark.parametrize(("module", "engine"), [("ray", "Ray"), ("pyspark", "Spark")])
def test_without_the_tracebacks_of(module: str, engine: str, perfdoctor: Perfdoctor) -> None:
    pytest.importorskip(module)
    checked = perfdoctor.check(
        *ENOUGH, JOBS / f"{module.removeprefix('py')}_job.py", env={"PYSPARK_PYTHON": sys.executable}
    )
    assert f"{engine} was ended with it" in checked.stderr
    assert "Traceback" not in checked.stdout + checked.stderr
    assert "the driver went on" not in checked.stdout
    assert checked.json["integrity"]["job_end"]["kind"] == "stopped"
