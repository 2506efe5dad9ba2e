"""What a worker of Ray knows of the training that it belongs to, and what Ray Train does in it for the loop."""

import functools
import sys

from .. import distant, failures
from ..timeline import CHECKPOINT, COMMUNICATION, LOGGING

_UPLOAD = ("StorageContext", "persist_current_checkpoint", "save", CHECKPOINT)
_TIMED = (
    ("ray.train.v2._internal.execution.storage", *_UPLOAD),
    ("ray.train._internal.storage", *_UPLOAD),  # of Ray Tune
    (
        "ray.train.v2._internal.execution.context",
        "TrainContext",
        "_sync_checkpoint_dir_name_across_ranks",
        "dist.report",
        COMMUNICATION,
    ),
    ("ray.train.v2._internal.execution.context", "TrainContext", "report", "log:ray.train.report", LOGGING),
)
"""Module, class and method, what it is counted as, and its part of the step. `ray.train.report` has the ranks wait for
one another, then copies a checkpoint to the storage, and then waits until Ray has taken in the report before."""
_RUNNER = "ray.train.v2._internal.execution.worker_group.thread_runner"
_CAUGHT = "construct_user_exception_with_traceback"
"""Called with what the training raised: no exception of it ends the process."""
_introduced = False


def introduce(probe) -> None:
    """Record the name of its run of Ray Train, or of its trial of Ray Tune, and the placement group that its ranks
    share: a run that Ray starts anew gets another one. "" for what it is not told."""
    global _introduced
    worker = _held("ray._private.worker", "global_worker")
    if worker is None:
        return
    try:
        group = worker.placement_group_id
        probe.recorder.record("ray", run=_run(), group="" if group.is_nil() else group.hex())
        if not _introduced:  # a forked process has the stand-ins already
            _introduced = True
            _watch(probe)
    except Exception as error:  # another version of Ray
        probe.fault("ray", error)


def _watch(probe) -> None:
    """Time what `report` does, and note what the training fails with."""
    for module, name, method, kind, part in _TIMED:
        owner = _held(module, name)
        original = vars(owner).get(method) if owner is not None else None
        if original is not None:
            stand_in = probe.calls.wrap(kind, original, part, probe.calls.began_in_loop if part == LOGGING else None)
            probe.changes.put(owner, method, stand_in, "ray")
    construct = _held(_RUNNER, _CAUGHT)
    if construct is None:
        return
    note = probe.guarded("ray", functools.partial(_failed, probe))

    @functools.wraps(construct)
    def caught(error, *args, **kwargs):
        note(error)
        return construct(error, *args, **kwargs)

    probe.changes.put(sys.modules[_RUNNER], _CAUGHT, caught, "ray")


def _failed(probe, error) -> None:
    """Written, and sent home, at once: Ray is about to end this process."""
    probe.recorder.record("failure", error=failures.told(error))
    probe.write_rows()
    if distant.outpost is not None:
        distant.outpost.see_off()


def _run() -> str:
    # Ray's public functions warn where they are called outside their own kind of worker.
    context = _held("ray.train.v2._internal.execution.context", "_train_context")
    if context is not None:
        return str(context.train_run_context.run_config.name)
    session = _held("ray.train._internal.session", "_session")
    trial = getattr(session, "trial_info", None)
    return str(trial.name) if trial is not None else ""


def _held(module: str, name: str):
    """A variable of a module that the worker has loaded, else None."""
    return getattr(sys.modules.get(module), name, None)
