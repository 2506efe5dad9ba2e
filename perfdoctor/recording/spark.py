"""What Spark gives the executors and tasks of a job, as its driver's context had it."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Missing

NO_SPARK = Missing("no context of Spark's was made")


@dataclass(frozen=True, slots=True)
class SparkResources:
    """Numbers are None where Spark's default holds."""

    master: str
    """Kind of the cluster: `local`, `local-cluster`, `spark`, `yarn`, `k8s`."""
    executor_gpus: float | None = None
    """Of one executor."""
    task_gpus: float | None = None
    """Of one task; a fraction where tasks share a GPU."""
    executor_cores: float | None = None
    task_cpus: float | None = None
