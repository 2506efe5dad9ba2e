"""What a launch ran on and how it was set up."""

from __future__ import annotations

from dataclasses import replace

import samples

from perfdoctor.evidence.model import Gpu, Missing
from perfdoctor.gate import fingerprint


def test_the_machine_is_known_by_all_that_moves_times() -> None:
    healthy = samples.healthy()
    assert not isinstance(healthy.threads, Missing)
    evidence = replace(
        healthy,
        machine=replace(
            healthy.machine,
            libc="glibc 2.36",
            container="python:3.12",
            gpus=(Gpu(0, "H100", 80 << 30, "550.54", (9, 0), 1980),),
        ),
        threads=replace(healthy.threads, variables=(("KMP_AFFINITY", "compact"),), openmp_runtimes=("libgomp",)),
    )
    found = fingerprint.machine(evidence)
    assert found["libc"] == "glibc 2.36"
    assert found["container image"] == "python:3.12"
    assert found["gpus"] == "H100 (driver 550.54, up to 1980 MHz)"
    assert found["thread variables"] == "KMP_AFFINITY=compact"
    assert found["thread pools"] == "libgomp"
    assert {"cpu flags", "cpus", "cpu quota", "memory", "kernel", "python", "torch"} <= set(found)


def test_what_nobody_could_tell_is_left_out_and_compares() -> None:
    healthy = samples.healthy()
    known = fingerprint.machine(replace(healthy, machine=replace(healthy.machine, kernel="")))
    assert "kernel" not in known
    assert fingerprint.differences(known, {**known, "kernel": "6.18.0"}) == ()
    assert fingerprint.differences({"libc": "a"}, {"libc": "b"}) == ("libc a, then b",)
