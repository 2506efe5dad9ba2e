"""The run of an experiment tracker that the job itself has started, where the user asks for a note to it.

Looked up among the modules that the job has loaded: none is imported, and no run is started.
"""

import sys


class Tracker:
    """Records the run that is active, each time it is another one."""

    def __init__(self, recorder, name: str) -> None:
        """`name`: of `LOOKS`; "" for none."""
        self.recorder = recorder
        self.name = name
        self.known = ""

    def look(self) -> None:
        """Called on the training thread: MLflow's active run is its own on each thread."""
        module = sys.modules.get(self.name)
        run = None if module is None else LOOKS[self.name](module)
        if run is not None and run["run"] != self.known:
            self.known = run["run"]
            self.recorder.record("tracked", tracker=self.name, **run)


def public(address: str) -> str:
    """An address without user, password and query, which may hold secrets; a path as it is."""
    scheme, mark, rest = address.partition("://")
    if not mark or scheme in ("file", "sqlite"):
        return address
    return scheme + mark + rest.partition("?")[0].rpartition("@")[2]


def _mlflow(module) -> "dict | None":
    run = module.active_run()
    return None if run is None else {"run": run.info.run_id, "at": public(module.get_tracking_uri())}


def _wandb(module) -> "dict | None":
    run = module.run
    if run is None or run.disabled:
        return None
    settings = run.settings
    return {
        "run": run.id,
        "at": public(settings.base_url),
        "path": "/".join(part for part in (run.entity, run.project, run.id) if part),
        "files": run.dir,
        "offline": bool(run.offline),
    }


LOOKS = {"mlflow": _mlflow, "wandb": _wandb}
