"""Writes a note to a run of an experiment tracker. Run as a program by the job's own interpreter, which has the
tracker: it imports nothing of perfdoctor, and reads from stdin what to write, as `Note` declares it.

Prints where the note is, in a few words. What it raises, the caller tells in a sentence.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TypedDict

FOLDER = "perfdoctor"
"""In the run's files, and in front of each number's name."""
SECONDS = 20
"""For one request."""


class Note(TypedDict):
    """What to write where."""

    tracker: str
    run: str
    at: str
    """MLflow's tracking URI, or the address of W&B's server; "" for what the environment says."""
    path: str
    """Of W&B: entity, project and run."""
    files: str
    """Of W&B: the folder of the run's files on this machine."""
    offline: bool
    verdict: str
    report: str
    """Markdown."""
    numbers: dict[str, float]


def write(note: Note) -> str:
    """Where it is, in words."""
    return _mlflow(note) if note["tracker"] == "mlflow" else _wandb(note)


def _mlflow(note: Note) -> str:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the job's run is there already
    import mlflow
    from mlflow.entities import Metric, RunTag

    client: Any = mlflow.MlflowClient(tracking_uri=note["at"] or None)
    now_ms = int(1000 * time.time())
    metrics = [Metric(f"{FOLDER}/{name}", value, now_ms, 0) for name, value in note["numbers"].items()]
    client.log_batch(note["run"], metrics=metrics, tags=[RunTag(f"{FOLDER}.verdict", note["verdict"])])
    client.log_text(note["run"], note["report"], f"{FOLDER}/report.md")
    return f"in the MLflow run {note['run']}: {FOLDER}/report.md, and metrics that begin with {FOLDER}/"


def _wandb(note: Note) -> str:
    here = Path(note["files"], FOLDER)
    named = {f"{FOLDER}/{name}": value for name, value in note["numbers"].items()}
    here.mkdir(parents=True, exist_ok=True)
    (here / "report.md").write_text(note["report"])
    (here / "numbers.json").write_text(json.dumps(named, indent=2))
    if note["offline"]:
        return f"in {here}, beside the other files of the W&B run, which is offline (`wandb sync` does not send it)"
    import wandb

    api: Any = wandb.Api(overrides={"base_url": note["at"]} if note["at"] else None, timeout=SECONDS)
    run = api.run(note["path"])
    run.summary.update({**named, f"{FOLDER}/verdict": note["verdict"]})
    run.upload_file(str(here / "report.md"), root=note["files"])
    return f"in the W&B run {note['path']}: {FOLDER}/report.md, and {FOLDER}/ in its summary"


if __name__ == "__main__":
    print(write(json.load(sys.stdin)))
