"""What reports say of the device's timeline, and that they say nothing without one."""

from __future__ import annotations

import json
from dataclasses import replace

import diagnosis_samples as samples
import pytest

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.evidence.model import DeviceWork, Line, Missing, OpProfile, Site
from perfdoctor.report.content import prepare
from perfdoctor.report.jsonreport import render_json
from perfdoctor.report.markdown import render_markdown
from perfdoctor.report.verdict import verdict, whereabouts

BY_DEVICE = samples.on_device()
BY_HOST = samples.on_device(idle_ms=23.0, ahead_ms=2.0)
"""As far as its borders say; `_without_profile` takes away the kernels that speak against it."""
BY_BOTH = samples.on_device(idle_ms=9.0, ahead_ms=12.0)


@pytest.mark.parametrize(
    ("diagnosis", "start", "numbers"),
    [
        (BY_DEVICE, "The device bounds the step", ("0.40 ms", "1.6 %", "17.0 ms", "kernels took 93 %")),
        (BY_HOST, "Host and device wait", ("1.00 ms to 2.00 ms", "94 %")),
        (BY_BOTH, "Host and device wait", ("11.0 ms to 12.0 ms", "9.00 ms", "37 %")),
    ],
)
def test_it_says_who_bounds_the_step_and_how_that_is_known(
    diagnosis: Diagnosis, start: str, numbers: tuple[str, ...]
) -> None:
    sentence = prepare(diagnosis).device
    assert sentence.startswith(start), sentence
    for number in numbers:
        assert number in sentence


def _without_profile(diagnosis: Diagnosis) -> Diagnosis:
    timeline = diagnosis.evidence.device
    assert not isinstance(timeline, Missing)
    unseen = replace(timeline, busy_share=Missing("no window"))
    return replace(diagnosis, evidence=replace(diagnosis.evidence, device=unseen))


def test_a_host_that_the_device_follows_bounds_the_step() -> None:
    sentence = prepare(_without_profile(BY_HOST)).device
    assert sentence.startswith("The host bounds the step: at every border")
    assert "at most 2.00 ms" in sentence
    assert "kernels" not in sentence


def test_each_of_several_devices_has_its_share() -> None:
    """Also where the borders of the step could not be marked because there are several."""
    devices = tuple(DeviceWork(index, busy) for index, busy in ((0, 9.8), (1, 12.25)))
    ops = OpProfile(2, (), 0.0, 0.0, device_busy_ms=19.6, devices=devices)
    for diagnosis in (BY_BOTH, samples.device_unknown()):
        several = replace(diagnosis, evidence=replace(diagnosis.evidence, ops=ops))
        sentence = prepare(several).device
        assert (
            "some device had a kernel on for 80 % of the step: 40 % of it on cuda:0 and 50 % of it on cuda:1."
            in sentence
        )
        alone = replace(ops, devices=devices[:1])
        assert "cuda:0" not in prepare(replace(diagnosis, evidence=replace(diagnosis.evidence, ops=alone))).device


def test_the_verdict_names_the_one_that_bounds_the_step() -> None:
    assert verdict(BY_DEVICE).startswith("The steady step, bound by the device, takes 24.5 ms")
    assert verdict(_without_profile(BY_HOST)).startswith("The steady step, bound by the host, takes 24.5 ms")
    assert verdict(BY_BOTH).startswith("The steady step takes 24.5 ms")
    ranks = replace(BY_DEVICE.evidence, rank=3, job=replace(BY_DEVICE.evidence.job, local_ranks=8))
    assert verdict(replace(BY_DEVICE, evidence=ranks)).startswith(
        "The steady step of rank 3, the slowest of 8, bound by the device, takes"
    )


def test_host_waiting_for_the_device_is_not_called_computing() -> None:
    diagnosis = samples.two_findings()
    finding = replace(samples.WORKERS, savings=replace(samples.WORKERS.savings, part=samples.Part.COMPUTE))
    on_cpu = samples.with_findings(diagnosis, finding)
    assert "is computing (forward, backward and optimizer)" in verdict(on_cpu)
    on_cuda = replace(on_cpu, evidence=replace(on_cpu.evidence, precision=samples.ON_CUDA))
    assert "is forward, backward and optimizer;" in verdict(on_cuda)


def test_where_the_device_bounds_the_step_only_its_own_parts_matter() -> None:
    # 10 of the host's 24.5 ms are `other`: waiting for the device, for all that anybody knows.
    assert "other code in the loop" in verdict(BY_BOTH)
    assert "other code in the loop" not in verdict(BY_DEVICE)
    lines = (Line(Site("train.py", 5, "main"), "forward", 3.0, 2.0, 1.0, 0.5, 0.5, 1.0),)
    by_device, by_both = (
        replace(diagnosis, evidence=replace(diagnosis.evidence, hot_lines=lines)) for diagnosis in (BY_DEVICE, BY_BOTH)
    )
    assert whereabouts(by_device) == "The largest part of the step on the device is backward pass, 14.0 ms (57 %)."
    assert "The largest part of the step is other code in the loop" in whereabouts(by_both)
    assert "train.py:5" in whereabouts(by_both)


def test_the_devices_parts_stand_beside_the_hosts() -> None:
    rows = {row.piece.part: row.device for row in prepare(BY_DEVICE).anatomy}
    assert rows == {
        "input_wait": "0.1 ms",
        "forward": "8.0 ms",
        "backward": "14.0 ms",
        "optimizer": "2.0 ms",
        "gc": "",
        "other": "0.4 ms",
    }
    text = render_markdown(BY_DEVICE, next_command="")
    assert "| part | time | share | on the device |\n|---|---:|---:|---:|\n" in text
    assert "| forward pass | 4.0 ms | 16 % | 8.0 ms |\n" in text
    assert "| garbage collection | 0.5 ms | 2.0 % |  |\n" in text


def test_where_the_timeline_is_missing_on_a_gpu_the_reason_is_given() -> None:
    content = prepare(samples.device_unknown())
    assert content.device.endswith("is not known: the model lies on several devices.")
    assert {row.device for row in content.anatomy} == {""}


@pytest.mark.parametrize("make", [samples.two_findings, samples.healthy, samples.no_step])
def test_a_job_on_the_cpu_hears_nothing_of_devices(make: object) -> None:
    diagnosis = make()  # type: ignore[operator]
    assert prepare(diagnosis).device == ""
    assert "device" not in verdict(diagnosis)
    assert "on the device" not in render_markdown(diagnosis, next_command="")


def test_programs_get_the_numbers_and_the_conclusion() -> None:
    seen = json.loads(render_json(BY_DEVICE))["anatomy"]["device"]
    assert seen["bound"] == "device"
    assert seen["total_ms"] == pytest.approx(24.5)
    assert seen["parts"] == {"input_wait": 0.1, "forward": 8.0, "backward": 14.0, "optimizer": 2.0, "other": 0.4}
    assert (seen["idle_most_ms"], seen["ahead_low_ms"], seen["ahead_high_ms"]) == (0.4, 17.0, 18.0)
    missing = json.loads(render_json(samples.device_unknown()))["anatomy"]["device"]
    assert missing == {"missing": "the model lies on several devices", "remedy": ""}
