"""The wheel holds what it must and works from an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
JOB = """import torch
from torch import nn

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that no build folder is left in the source tree."""
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    source.mkdir()
    for name in ("perfdoctor", "checks", "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)
    isolation = ["--no-build-isolation"] if find_spec("setuptools") else []
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-w", directory, source],
        check=True,
        timeout=150,
    )
    (built,) = directory.glob("perfdoctor-*.whl")
    return built


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_source_file(wheel: Path) -> None:
    names = _names(wheel)
    for folder, package in (("perfdoctor", "perfdoctor"), ("checks", "perfdoctor/checks")):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith("."):
                assert f"{package}/{file.relative_to(ROOT / folder)}" in names
    assert {
        "perfdoctor/py.typed",
        "perfdoctor/checks/gc.py",
        "perfdoctor/injected/sitecustomize.py",
        "perfdoctor/injected/_perfdoctor_probe/probe.py",
    } <= names
    assert any(name.startswith("perfdoctor/report/templates/") for name in names)
    assert {"perfdoctor/report/html/assets/page.css", "perfdoctor/report/html/templates/base.html.j2"} <= names


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in _names(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"perfdoctor"}


def test_an_installed_wheel_checks_a_job(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the dependencies, and from where the source tree cannot be imported."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--no-deps", wheel],
        check=True,
        timeout=150,
    )
    # Lines of a .pth file go on the path, after its own directory; the .pth files there are not read.
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    (packages / "dependencies.pth").write_text(f"{Path(torch.origin).parent.parent}\n")
    (tmp_path / "train.py").write_text(JOB)
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PERFDOCTOR", "PYTHON", "VIRTUAL_ENV"))}

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=150, check=False
        )

    python = environment / "bin" / "python"
    where = run(python, "-c", "import perfdoctor, perfdoctor.checks.gc as gc; print(perfdoctor.__file__, gc.__file__)")
    assert all(path.startswith(str(packages)) for path in where.stdout.split()), where

    checked = run(environment / "bin" / "perfdoctor", "check", "--fail-on", "never", "train.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "The steady step takes" in checked.stdout
    assert "omp-threads" in checked.stdout
