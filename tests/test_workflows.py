"""The workflows and the action by the schemas of their platforms, and the action's shell by running it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from public_schemas import ACTION, GITLAB_CI, WORKFLOW, require_valid

ROOT = Path(__file__).parent.parent
TEMPLATES = ROOT / "perfdoctor" / "commands" / "templates"
STEPS = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]


def read(path: Path) -> Any:
    """YAML 1.1 takes the key `on` for true; no workflow does."""
    document = yaml.safe_load(path.read_text())
    if True in document:
        document["on"] = document.pop(True)
    return document


@pytest.mark.parametrize("path", [ROOT / "sample_configs" / "github-workflow.yml", TEMPLATES / "github.yml"])
def test_workflows_are_valid(path: Path) -> None:
    require_valid(read(path), WORKFLOW)


def test_the_action_is_valid() -> None:
    require_valid(read(ROOT / "action.yml"), ACTION)


@pytest.mark.parametrize("path", [ROOT / "sample_configs" / "gitlab-ci.yml", TEMPLATES / "gitlab.yml"])
def test_gitlab_pipelines_are_valid(path: Path) -> None:
    require_valid(read(path), GITLAB_CI)


@pytest.mark.parametrize(
    ("change", "url"), [({"runs": {"using": "composite"}}, ACTION), ({"jobs": {"gate": {"runs_on": "x"}}}, WORKFLOW)]
)
def test_what_is_wrong_is_noticed(change: dict[str, Any], url: str) -> None:
    path = ROOT / ("action.yml" if url == ACTION else "sample_configs/github-workflow.yml")
    with pytest.raises(jsonschema.ValidationError):
        require_valid({**read(path), **change}, url)


# ---------------------------------------------------------------------------------------------------------
# The action's shell


class Runner:
    """Runs the action's steps as GitHub does: expressions filled in, outputs read back from a file."""

    def __init__(self, directory: Path, code: int, verdict: str) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        self.tool("python", f'exec {sys.executable} "$@"\n')
        report = f"echo '{json.dumps({'verdict': verdict})}' > perfdoctor-gate.json\n" if verdict else ""
        self.tool("perfdoctor", f'printf "%s\\n" "$@" > words\n{report}exit {code}\n')
        self.inputs = {
            name: str(given.get("default", "")) for name, given in read(ROOT / "action.yml")["inputs"].items()
        }
        self.outputs: dict[str, str] = {}

    def tool(self, name: str, body: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}")
        path.chmod(0o755)

    def run(self, step: dict[str, Any]) -> int:
        """One `run:` step; its exit code."""
        output = self.directory / "output"
        output.touch()
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", self.filled(step["run"])],
            cwd=self.directory,
            env={
                "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
                "GITHUB_OUTPUT": str(output),
                **{name: self.filled(value) for name, value in step.get("env", {}).items()},
            },
            check=False,
        )
        self.outputs.update(line.split("=", 1) for line in output.read_text().splitlines())  # type: ignore[arg-type]
        return done.returncode

    def filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            expression = match[1]
            if "format(" in expression:
                return self.inputs["against"] or "origin/main"
            kind, _, name = expression.rpartition(".")
            return {"inputs": self.inputs, "steps.gate.outputs": self.outputs}[kind].get(name, "")

        return re.sub(r"\$\{\{ (.+?) \}\}", value, text)

    @property
    def words(self) -> list[str]:
        return (self.directory / "words").read_text().splitlines()


GATE = next(step for step in STEPS if step.get("id") == "gate")


@pytest.mark.parametrize(("code", "verdict"), [(0, "pass"), (1, "regression"), (3, "inconclusive"), (4, ""), (2, "")])
def test_the_action_ends_as_the_gate_did_and_only_at_its_end(tmp_path: Path, code: int, verdict: str) -> None:
    runner = Runner(tmp_path, code, verdict)
    runner.inputs["script"] = "train.py --epochs 2"
    assert runner.run(GATE) == 0, "what comes after it must still run"
    assert runner.outputs["exit-code"] == str(code)
    assert runner.outputs.get("verdict", "") == verdict
    assert runner.words[:3] == ["gate", "--against", "origin/main"]
    assert runner.words[-3:] == ["train.py", "--epochs", "2"]
    assert runner.run(STEPS[-1]) == code


def test_the_actions_inputs_become_options(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0, "pass")
    runner.inputs |= {"script": "train.py", "baseline": "a b.json", "setup": "pip install -e .", "options": "--verbose"}
    runner.run(GATE)
    assert runner.words[:5] == ["gate", "--baseline", "a b.json", "--setup", "pip install -e ."]
    assert "--verbose" in runner.words
    assert runner.words[runner.words.index("--tolerance") + 1] == "5%"


def test_a_crash_before_the_gate_is_no_success(tmp_path: Path) -> None:
    """No exit code was written: the last step must not pass."""
    assert Runner(tmp_path, 0, "").run(STEPS[-1]) != 0
