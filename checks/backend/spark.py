"""Spark reserves GPUs for its executors that no task of theirs can use."""

from __future__ import annotations

import math

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, savings
from perfdoctor.api.quantities import Missing, SparkResources

from .case import Case


def idle_under_spark(case: Case) -> Finding | None:
    """By what Spark gives an executor and a task, and the GPUs that this rank uses. One task runs one rank."""
    spark, each = case.evidence.spark, case.gpus_of_rank
    if isinstance(spark, Missing) or spark.master == "local" or not spark.executor_gpus:
        return None
    reserved, tasks = round(spark.executor_gpus), _at_once(spark)
    if tasks is None:
        return None
    shared = (spark.task_gpus or 1) < 1
    used = min(reserved, math.ceil(tasks * (spark.task_gpus or 1)) if shared and each else tasks * each)
    if used >= reserved:
        return None
    return Finding(
        id="PD01.spark-idle-gpus",
        severity=Severity.NOTE,
        confidence=Confidence.LOW,
        message="Spark reserves {reserved:GPU} for an executor; the {tasks:task|tasks} that fit into it can use {used}",
        reasoning="`spark.executor.resource.gpu.amount` is what an executor takes from the cluster; a task, which is "
        f"one rank, trains on {each}",
        evidence=(
            Measurement("reserved", reserved, "count", "GPUs of an executor"),
            Measurement("tasks", tasks, "count", "at a time in an executor, by its cores and GPUs"),
            Measurement("used", used, "count", "GPUs that they train on"),
            *case.used(),
        ),
        fix=_fix(spark, reserved, each),
        savings=savings(
            case.step,
            0.0,
            0.0,
            "not predicted; the ceiling is the same global batch on all GPUs that are reserved",
            ceiling=case.step.parts.compute * (1 - used / reserved),
        ),
    )


def _at_once(spark: SparkResources) -> int | None:
    """Tasks that an executor has room for; None where nothing says so."""
    by_cores = spark.executor_cores / (spark.task_cpus or 1) if spark.executor_cores else math.inf
    by_gpus = (spark.executor_gpus or 0) / spark.task_gpus if spark.task_gpus else math.inf
    fewest = min(by_cores, by_gpus)
    return None if fewest == math.inf else int(fewest)


def _fix(spark: SparkResources, reserved: int, each: int) -> Fix:
    cores = round(reserved * (spark.task_cpus or 1))
    if not each:
        return Fix(
            text="Train on them, or ask for executors without GPUs.",
            code="TorchDistributor(num_processes=..., use_gpu=True)  # and model.to('cuda') in the function",
            risk="Float32 results differ in the last digits between CPU and GPU.",
        )
    return Fix(
        text="Give each task one GPU, an executor a core for each task, and start one process for each GPU with "
        "TorchDistributor(num_processes=...). Or reserve fewer GPUs.",
        code="spark-submit --conf spark.task.resource.gpu.amount=1 "
        f"--conf spark.executor.resource.gpu.amount={reserved} --conf spark.executor.cores={cores} driver.py",
        language="bash",
        risk="A larger global batch changes the optimisation.",
    )
