"""`perfdoctor init`, the sample workflows and the action."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfdoctor.commands import init
from perfdoctor.commands.outputs import FORMATS
from perfdoctor.config.files import load
from perfdoctor.errors import PerfdoctorError
from perfdoctor.report.gate_markdown import MARKER

ROOT = Path(__file__).parent.parent
SAMPLES = {"github-workflow.yml": "github.yml", "gitlab-ci.yml": "gitlab.yml"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    return tmp_path


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_it_writes_a_configuration_that_can_be_read_and_a_workflow(project: Path) -> None:
    said = init.run(project, "train.py", None)
    assert "wrote perfdoctor.toml" in said
    config = load(project)
    assert config.gate.tolerance == 0.05
    assert config.budgets[0].name == "data_wait_share"
    workflow = read(project / ".github/workflows/perfdoctor.yml")
    (gate,) = [step for step in workflow["jobs"]["gate"]["steps"] if step.get("id") == "gate"]
    assert "train.py" in gate["run"]


def test_it_touches_nothing_that_exists(project: Path) -> None:
    init.run(project, "train.py", None)
    before = {path: path.read_text() for path in project.rglob("*") if path.is_file()}
    assert init.run(project, "train.py", None).count("exists already") == 2
    assert {path: path.read_text() for path in project.rglob("*") if path.is_file()} == before


def test_a_pyproject_gets_a_section_once(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n')
    init.run(project, "train.py", None)
    assert not (project / "perfdoctor.toml").exists()
    assert load(project).gate.time_budget_s == 600
    assert load(project).budgets[0].max == 0.1
    assert "already" in init.run(project, "train.py", None)


def test_gitlab_is_chosen_where_it_is_used(project: Path) -> None:
    (project / ".gitlab-ci.yml").write_text("")
    assert "include" in init.run(project, "train.py", None)
    assert "perfdoctor" in read(project / ".gitlab/perfdoctor.yml")
    init.run(project, "train.py", "github")
    assert (project / ".github/workflows/perfdoctor.yml").exists()


def test_a_script_that_is_not_there_is_refused(project: Path) -> None:
    with pytest.raises(PerfdoctorError):
        init.run(project, "nothing.py", None)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_what_init_writes(name: str) -> None:
    template = (init.TEMPLATES / SAMPLES[name]).read_text()
    assert (ROOT / "sample_configs" / name).read_text() == template.replace("SCRIPT", "train.py")


@pytest.mark.parametrize("path", [ROOT / "action.yml", *(ROOT / "sample_configs" / name for name in SAMPLES)])
def test_workflows_use_options_and_formats_that_exist(path: Path) -> None:
    import typer.main

    from perfdoctor.cli import app

    command = typer.main.get_command(app).commands["gate"]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    text = re.sub(r"gh (api|pr)[^\n]*|--jq[^\n]*", "", path.read_text())
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
    assert used
    assert used <= known, used - known
    formats = set(re.findall(r"--output (\w+)", text))
    assert formats
    assert formats <= set(FORMATS)


def test_the_action_keeps_the_evidence_of_a_red_gate() -> None:
    action = read(ROOT / "action.yml")
    steps = action["runs"]["steps"]
    order = [
        next(i for i, step in enumerate(steps) if word in str(step)) for word in ("perfdoctor gate ", "upload-artifact")
    ]
    assert order == sorted(order)
    assert "exit" in steps[-1]["run"]
    assert set(action["outputs"]) == {"verdict", "exit-code", "report"}
    assert MARKER in (ROOT / "action.yml").read_text()
