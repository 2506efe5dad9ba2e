"""Spark's executors get the probe by Spark's own means: a file that the driver ships, and their Python's PYTHONPATH.

That is done as soon as the driver's context stands, so before any task. In local mode tasks run under the driver and
have its environment: there nothing is shipped. In a `local-cluster` they have it too, but for what `spark.executorEnv`
replaces. Spark Connect has no context in the driver's process.

The driver says too how many GPUs Spark gives an executor and a task. Before pyspark is imported only modules that the
bare interpreter has loaded may be used.
"""

import os

from .imports import IMPORTS
from .stop import VARIABLE

_CONTEXT = "pyspark.core.context"
_SETTINGS = {
    "executor_gpus": "spark.executor.resource.gpu.amount",
    "task_gpus": "spark.task.resource.gpu.amount",
    "executor_cores": "spark.executor.cores",
    "task_cpus": "spark.task.cpus",
}
"""What is recorded -> the setting of Spark's; nothing else of its configuration is."""
_OF_THIS_MACHINE = "PERFDOCTOR_CPUS"
_STARTERS = ("pyspark.daemon", "pyspark.ml.torch.torch_run_process_wrapper")
"""What an executor's tasks run under, and what TorchDistributor starts ranks with, of a function or a file."""
_ANSWER_S = 5.0
"""For the launcher to pack the probe, which takes it a tenth of a second."""


def mark(module: str) -> None:
    """Have what this process starts know that it is a worker of Spark's; `module`: of `python -m`."""
    if module in _STARTERS:
        os.environ[VARIABLE] = "Spark"


def when_imported(recorder) -> None:
    """Have the contexts that this process makes ship the probe."""

    def wrap(module) -> None:
        original = module.SparkContext._do_init

        def _do_init(self, *args, **kwargs):
            original(self, *args, **kwargs)
            try:
                _observe(self, recorder)
            except Exception as error:
                recorder.record("fault", hook="spark", error=f"{type(error).__name__}: {error}"[:300])
            recorder.flush()

        module.SparkContext._do_init = _do_init

    IMPORTS.awaited[_CONTEXT] = wrap


def _observe(context, recorder) -> None:
    """A context has just been made."""
    master = context.master.partition(":")[0].partition("[")[0]
    found = {name: _number(context._conf.get(key, None)) for name, key in _SETTINGS.items()}
    recorder.record("spark", master=master, **{name: value for name, value in found.items() if value is not None})
    if master != "local":
        _ship(context, recorder)


def _number(text) -> "float | None":
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _ship(context, recorder) -> None:
    # Spark has imported what this imports.
    from . import channel, control

    # The address of the driver's that its executors call, and the one that it listens on.
    host = context._conf.get("spark.driver.host", "")
    bound = context._conf.get("spark.driver.bindAddress", host)
    elsewhere = not context.master.startswith("local")
    launcher = control.Control(
        recorder.run, {"k": "driver", "host": host, "bound": bound} if elsewhere else {"k": "driver"}
    )
    try:
        answer = launcher.wait(_ANSWER_S)
    finally:
        launcher.close()
    if answer is None:
        raise RuntimeError("the launcher did not pack the probe for Spark's executors")
    context.addFile(answer["payload"])
    # What the user wants for them, by `spark.executorEnv` or otherwise, is in here already.
    environment, name = context.environment, os.path.basename(answer["payload"])
    old = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = f"{name}:{old}" if old else name
    for variable, value in os.environ.items():
        if variable.startswith("PERFDOCTOR_") and variable != _OF_THIS_MACHINE:
            environment[variable] = value
    if answer["channel"]:
        environment[channel.VARIABLE] = answer["channel"]
