"""What ended a process, in words."""

from __future__ import annotations

import pytest

from perfdoctor.injected._perfdoctor_probe.failures import told


class HealthCheckError(Exception):
    """As Ray has it for a worker that it hears from no more."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"A worker health check failed.\n{cause}")
        self.health_check_failure = cause


class WorkerGroupError(Exception):
    """As Ray Train raises it in the driver."""

    def __init__(self, failures: dict[int, Exception]) -> None:
        super().__init__("Training failed due to worker errors:\n[Rank 0 Error Snippet]:\nTraceback ...")
        self.worker_failures = failures


_LOST = RuntimeError("[gloo] Connection closed by peer [127.0.0.2]:3")
_DIED = HealthCheckError(RuntimeError("The actor died unexpectedly\n\tclass_name: Worker"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("a bad shard"), "ValueError: a bad shard"),
        (WorkerGroupError({}), "WorkerGroupError: Training failed due to worker errors:"),
        (WorkerGroupError({0: _LOST, 1: ValueError("bad")}), "WorkerGroupError: rank 1 raised ValueError: bad"),
        (
            WorkerGroupError({0: ValueError("bad"), 1: _DIED}),
            "WorkerGroupError: rank 1 died: The actor died unexpectedly class_name: Worker",
        ),
        (WorkerGroupError({2: _LOST, 1: _LOST}), f"WorkerGroupError: rank 1 raised RuntimeError: {_LOST}"),
    ],
)
def test_of_several_workers_the_one_that_failed_first_is_told(error: Exception, expected: str) -> None:
    assert told(error).split("\n")[0] == expected


def test_a_long_message_is_cut() -> None:
    assert len(told(ValueError("x" * 1000))) == 300
