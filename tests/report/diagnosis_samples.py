"""Diagnoses built by hand: small, but with everything a report has to show."""

from __future__ import annotations

from dataclasses import replace

from samples import HOST, JOB, empty, step, with_

from perfdoctor.diagnosis.diagnoses import CheckResult, Combined, Diagnosis, IntegrityNote, SuppressedFinding
from perfdoctor.diagnosis.findings import Confidence, Finding, Fix, Location, Measurement, Part, Savings, Severity
from perfdoctor.diagnosis.measured import Gain, Range, Trial, Trials, Verdict
from perfdoctor.diagnosis.outcomes import Outcome, OutcomeKind, cannot_tell, clear, found, not_applicable
from perfdoctor.evidence.model import (
    DeviceParts,
    DeviceTimeline,
    JobEnd,
    Machine,
    Missing,
    Neighbour,
    OwnCost,
    Parts,
    Precision,
    ProbeFault,
)

WORKERS = Finding(
    id="PD03.too-few-workers",
    severity=Severity.ERROR,
    confidence=Confidence.HIGH,
    message="the loop waits {wait_ms} per step for the next batch, {wait_share} of the step",
    evidence=(
        Measurement("wait_ms", 14.2, "ms", "wait for each batch"),
        Measurement("wait_share", 14.2 / 24.8, "share", "share of the step"),
        Measurement("empty_share", 0.953, "share", "arrivals that found the queue empty"),
        Measurement("fetch_ms", 21.94, "ms", "time a worker needs for a batch"),
        Measurement("num_workers", 1, "count"),
    ),
    fix=Fix(
        text="use 3 worker processes instead of {num_workers}, and keep them between epochs",
        code=(
            "loader = DataLoader(\n"
            "    dataset,\n"
            "    num_workers=3,\n"
            "    persistent_workers=True,\n"
            "    **{{'batch_size': 32}},\n"
            ")"
        ),
        risk="Each worker holds a copy of the dataset object in memory",
        remedies=("loader-workers",),
    ),
    savings=Savings(
        ceiling_ms=14.2,
        low_ms=11.2,
        high_ms=13.4,
        share=14.2 / 24.8,
        method="the measured fetch time divided over 2 to 3 workers, less the cost of passing a batch on",
        part=Part.INPUT_WAIT,
    ),
    location=Location("train.py", 41, "main"),
    reasoning=(
        "a worker needs {fetch_ms} for a batch while the model needs less, it computes nearly all of that "
        "time, and CPUs are free"
    ),
    rank_note="all ranks",
)

EXPLICIT_GC = Finding(
    id="PD04.explicit-collect",
    severity=Severity.WARNING,
    confidence=Confidence.MEDIUM,
    message="gc.collect() runs {calls} times per step and takes {gc_ms}",
    evidence=(Measurement("calls", 0.5, "count"), Measurement("gc_ms", 2.4, "ms")),
    fix=Fix(
        text="take the call out of the loop",
        code="# delete: gc.collect()",
        risk="memory held by reference cycles is freed later",
    ),
    savings=Savings(2.4, 2.2, 2.4, 2.4 / 24.8, "the time inside these calls", Part.GC),
    location=Location("train.py", 57, "train_epoch"),
)

STEP = step(
    Parts(input_wait=14.2, forward=2.6, backward=4.1, optimizer=1.2, checkpoint=0.05, gc=2.4, other=0.25),
    seconds=4.96,
    warmup=12,
    irregular=2,
    irregular_ms=0.8,
    step_ms=24.8,
    median_ms=24.5,
    mad_ms=0.6,
    low_ms=24.31,
    high_ms=25.22,
    cpu_ms=9.9,
    process_cpu_ms=10.4,
    run_delay_ms=0.31,
)

EVIDENCE = with_(
    empty(),
    machine=Machine("EPYC 9354", 2, 1, 2, None, 8 << 30, "6.18.0", 240.0),
    job=replace(
        JOB,
        command=("python", "train.py", "--name", "a b"),
        workers=1,
        frameworks=("transformers", "accelerate"),
        environment=(("OMP_NUM_THREADS", "1"), ("CUDA_VISIBLE_DEVICES", "")),
    ),
    step=STEP,
    host=replace(
        HOST,
        samples=50,
        seconds=25.0,
        job_cpus=1.4,
        others_cpus=0.3,
        idle_cpus=0.3,
        job_run_delay_share=0.02,
        throttled_share=Missing("no CPU quota"),
        throttled_time_share=Missing("no CPU quota"),
        pressure_share=Missing("no PSI"),
        memory_pressure_share=Missing("no PSI"),
        memory_available_bytes=4 << 30,
        peak_job_bytes=412 << 20,
        neighbours=(Neighbour(731, "python other.py", "ann", 0.25),),
    ),
    own_cost=OwnCost(8.2, 35.0, 120.0, 0.012, 0.012, 62.0),
)

ON_CUDA = Precision(
    default_dtype="float32",
    parameter_dtypes=(("float32", 1_000_000),),
    parameter_devices=("cuda:0",),
    autocast_dtype="",
    grad_scaler=False,
    bf16_native=None,
    fp16_native=None,
    compute_capability=(9, 0),
    tf32_matmul=True,
    batch_dtypes=(),
)

CHECKS = (
    CheckResult("PD03", "etl", "data loading", found(WORKERS)),
    CheckResult("PD04", "gc", "garbage collection", found(EXPLICIT_GC)),
    CheckResult(
        "PD07",
        "dtype",
        "data types",
        clear("all {flops} per step run in float32", Measurement("flops", 1.23e10, "flops")),
    ),
    CheckResult("PD08", "workspaces", "memory reuse", not_applicable("the job uses no GPU memory")),
    CheckResult(
        "PD13",
        "omp-threads",
        "threads and CPUs",
        cannot_tell("no threads were recorded; run with --steps 50 or more"),
    ),
)


def found_by(*findings: Finding) -> tuple[CheckResult, ...]:
    """Results of checks that have found these."""
    codes = dict.fromkeys(finding.id.partition(".")[0] for finding in findings)
    by_code = {code: [f for f in findings if f.id.partition(".")[0] == code] for code in codes}
    return tuple(CheckResult(code, code.lower(), code, found(*some)) for code, some in by_code.items())


def with_findings(diagnosis: Diagnosis, *findings: Finding) -> Diagnosis:
    """The diagnosis with these findings in place of all its own."""
    results = {result.code: result for result in found_by(*findings)}
    checks = [
        replace(old, outcome=results.pop(old.code, replace(old, outcome=replace(old.outcome, findings=()))).outcome)
        for old in diagnosis.checks
    ]
    return replace(diagnosis, checks=(*checks, *results.values()))


def two_findings() -> Diagnosis:
    """Slow data loading and an explicit collection; the combined saving is less than the sum."""
    return Diagnosis(EVIDENCE, CHECKS, Combined(12.8, 15.8, 24.8))


def tried() -> Diagnosis:
    """Trials of every outcome: one that helped, one that did not, a bound, and two that say why they say nothing."""
    workers, collect = (WORKERS.fingerprint,), (EXPLICIT_GC.fingerprint,)
    single = (
        Trial(
            "etl.workers=3",
            Verdict.HELPED,
            Gain(1.93, 1.86, 2.01, 8, 1, 10, 24.6),
            Range(1.8, 2.2),
            workers,
            text="batches are made by workers, 3 of them",
            keep="DataLoader(dataset, ..., num_workers=3)",
        ),
        Trial(
            "etl.replay", Verdict.HELPED, Gain(2.4, 2.3, 2.5, 6, 0, 10, 24.5), None, workers, text="the same batches"
        ),
        Trial(
            "gc.no-explicit",
            Verdict.HELPED,
            Gain(1.09, 1.05, 1.13, 6, 0, 10, 24.5),
            Range(1.1, 1.11),
            collect,
            text="`gc.collect()` does nothing",
            keep="# take gc.collect() out of the loop",
        ),
        Trial("gc.freeze", Verdict.NO_DIFFERENCE, Gain(0.97, 0.94, 1.01, 8, 0, 10, 24.5), None, collect),
        Trial("threads=1", Verdict.HURT, Gain(0.72, 0.70, 0.74, 8, 0, 10, 24.5), Range(1.0, 1.1)),
        Trial("threads.passive", Verdict.NOT_TRIED, reason="it needs a new launch, which was not made"),
        Trial("memory.malloc", Verdict.NOT_MEASURED, reason="another allocator stands in for \x1b[31mglibc's"),
    )
    together = Trial(
        "etl.workers=3+gc.no-explicit", Verdict.HELPED, Gain(2.31, 2.2, 2.42, 6, 0, 10, 24.6), Range(2.1, 2.7)
    )
    return replace(two_findings(), trials=Trials(single, together, 71.2, 0.062, 14))


def healthy() -> Diagnosis:
    """A fast step, every check clear."""
    parts = Parts(input_wait=0.01, forward=0.9, backward=1.3, optimizer=0.4, other=0.04)
    fast = replace(STEP, step_ms=parts.total, parts=parts, median_ms=2.6, mad_ms=0.05, low_ms=2.6, high_ms=2.7)
    checks = (
        CheckResult(
            "PD03",
            "etl",
            "data loading",
            clear("the loader keeps up", Measurement("wait_ms", 0.01, "ms")),
        ),
        CheckResult(
            "PD04",
            "gc",
            "garbage collection",
            clear("collections take {gc_share} of the step", Measurement("gc_share", 0.0, "share")),
        ),
    )
    return Diagnosis(replace(EVIDENCE, step=fast), checks, None)


def no_step() -> Diagnosis:
    """The job crashed before its first step."""
    job = replace(EVIDENCE.job, end=JobEnd("crashed", exit_code=1, detail="ValueError: boom"))
    evidence = replace(
        EVIDENCE,
        job=job,
        step=Missing("the job ended before its second optimizer step", "run it for at least 20 steps"),
        host=Missing("the job ended within the first sample"),
        own_cost=Missing("no step to measure it on"),
    )
    checks = tuple(replace(check, outcome=cannot_tell("there is no steady step")) for check in CHECKS)
    note = IntegrityNote("PD90", "too-few-steps", Severity.ERROR, "no step was seen")
    return Diagnosis(evidence, checks, None, (note,))


def troubled() -> Diagnosis:
    """A crashed check, a suppressed finding, a busy machine, a failed hook, 8 ranks, and hostile text."""
    hostile = replace(
        WORKERS,
        message="a|b waits {wait_ms} in [red]x[/red] `y` <module>\x1b[31m",
        rank_note="rank 3 only",
    )
    checks = (
        replace(CHECKS[0], outcome=found(hostile)),
        replace(
            CHECKS[1],
            outcome=clear("nothing else in {gc_ms}", Measurement("gc_ms", 2.4, "ms")),
            suppressed=(SuppressedFinding(EXPLICIT_GC, "needed for the leak test | see #12"),),
        ),
        replace(CHECKS[2], outcome=Outcome(OutcomeKind.CRASHED, "KeyError: '{x}'\nsecond line")),
        *CHECKS[3:],
    )
    note = IntegrityNote(
        "PD92",
        "contended-machine",
        Severity.WARNING,
        "other processes used {others} of the CPU time",
        (Measurement("others", 0.42, "share"),),
    )
    evidence = replace(
        EVIDENCE,
        rank=3,
        job=replace(EVIDENCE.job, world_size=16, local_ranks=8),
        probe_faults=(ProbeFault("DataLoader.__init__", "AttributeError: no [bold]site[/bold]"),),
    )
    return Diagnosis(evidence, checks, Combined(11.2, 13.4, 24.8), (note,))


def on_device(idle_ms: float = 0.4, ahead_ms: float = 18.0) -> Diagnosis:
    """Training on a GPU: the device bounds the step, the host or both by turns, by these two numbers."""
    diagnosis = healthy()
    parts = Parts(input_wait=3.0, forward=4.0, backward=6.0, optimizer=1.0, gc=0.5, other=10.0)
    timeline = DeviceTimeline(
        steps=28,
        parts=DeviceParts(input_wait=0.1, forward=8.0, backward=14.0, optimizer=2.0, other=0.4),
        idle_most_ms=idle_ms,
        ahead_low_ms=ahead_ms - 1,
        ahead_high_ms=ahead_ms,
        busy_share=0.93,
    )
    evidence = replace(
        diagnosis.evidence, step=replace(STEP, step_ms=parts.total, parts=parts), device=timeline, precision=ON_CUDA
    )
    return replace(diagnosis, evidence=evidence)


def device_unknown() -> Diagnosis:
    """Training on a GPU, without its timeline."""
    diagnosis = on_device()
    unknown = Missing("the model lies on several devices")
    return replace(diagnosis, evidence=replace(diagnosis.evidence, device=unknown))


ALL = (two_findings, healthy, no_step, troubled, on_device, device_unknown)
