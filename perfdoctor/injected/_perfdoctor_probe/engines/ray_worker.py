"""What a worker of Ray knows of the training that it belongs to."""

import sys


def introduce(probe) -> None:
    """Record the name of its run of Ray Train, or of its trial of Ray Tune, and the placement group that its ranks
    share: a run that Ray starts anew gets another one. "" for what it is not told."""
    worker = _held("ray._private.worker", "global_worker")
    if worker is None:
        return
    try:
        group = worker.placement_group_id
        probe.recorder.record("ray", run=_run(), group="" if group.is_nil() else group.hex())
    except Exception as error:  # another version of Ray
        probe.fault("ray", error)


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
