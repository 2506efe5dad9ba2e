from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfdoctor.commands.environment import read_environment
from perfdoctor.version import VERSION

pytestmark = pytest.mark.e2e


def _interpreter(tmp_path: Path, script: str) -> str:
    """A program in the place of a Python interpreter."""
    file = tmp_path / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def _without_torch(tmp_path: Path) -> str:
    """This interpreter, with a `torch` that cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('broken on purpose')\n")
    return _interpreter(tmp_path, f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"')


def test_torch_is_told_as_the_interpreter_sees_it() -> None:
    environment = read_environment(sys.executable)
    assert environment.torch is not None
    assert environment.torch_absent == ""
    assert environment.torch.version[0].isdigit()
    assert environment.torch.threads is not None
    assert environment.torch.blas != "unknown"
    assert environment.torch.cpu_capability != "unknown"
    text = environment.as_text()
    assert VERSION in text
    assert environment.torch.version in text
    assert environment.machine.cpu_model in text


def test_torch_that_cannot_be_imported_is_said(tmp_path: Path) -> None:
    environment = read_environment(_without_torch(tmp_path))
    assert environment.torch is None
    assert environment.torch_absent == "torch cannot be imported: ImportError: broken on purpose"
    assert environment.python_version.startswith("3.")
    assert "broken on purpose" in environment.as_text()


def test_torch_that_prints_while_imported_does_not_confuse(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('perfdoctor-', end='')\n__version__ = '9.9'\n")
    python = _interpreter(tmp_path, f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    environment = read_environment(python)
    assert environment.torch is not None
    assert environment.torch.version == "9.9"
    assert environment.torch.threads is None
    assert "unknown intra-op" in environment.as_text()


@pytest.mark.parametrize(
    ("script", "patience_s", "said"),
    [
        ("echo boom >&2; exit 3", 60.0, "ended with code 3: boom"),
        ("exec sleep 60", 0.5, "did not answer within"),
    ],
)
def test_an_interpreter_that_fails_is_said(tmp_path: Path, script: str, patience_s: float, said: str) -> None:
    environment = read_environment(_interpreter(tmp_path, script), timeout_s=patience_s)
    assert environment.torch is None
    assert said in environment.torch_absent


def test_an_interpreter_that_is_not_there_is_said(tmp_path: Path) -> None:
    environment = read_environment(str(tmp_path / "nowhere"))
    assert "cannot be run" in environment.torch_absent
    assert environment.python_version == ""
    assert "unknown" in environment.as_text()


def test_the_dictionary_is_plain_json(tmp_path: Path) -> None:
    environment = read_environment(_without_torch(tmp_path))
    as_read = json.loads(json.dumps(dataclasses.asdict(environment)))
    assert as_read["perfdoctor_version"] == VERSION
    assert as_read["torch"] is None
    assert as_read["machine"]["logical_cpus"] == environment.machine.logical_cpus


def test_perfdoctor_itself_never_imports_torch() -> None:
    code = "import sys, perfdoctor.commands.environment, perfdoctor.monitor.sampler; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
