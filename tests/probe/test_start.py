"""How the probe gets into a process, and what it leaves alone there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SAY = """\
import sys
import os
before = set(sys.modules)
import torch
import facts
print(sys.path, sys.argv, __name__, __file__)
facts.show("process", facts.process())
print("sitecustomize" in sys.modules, "usercustomize" in sys.modules)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory for user code, with `facts` in it."""
    directory = tmp_path / "user"
    directory.mkdir()
    (directory / "facts.py").write_text((Path(__file__).parent.parent / "jobs" / "facts.py").read_text())
    return directory


def test_an_unrelated_process_looks_the_same(observe, here):
    (here / "say.py").write_text(SAY)
    seen = observe("say.py", "a", "--b", cwd=here)
    seen.same()
    assert seen.processes[0].role == "helper"
    assert seen.processes[0].torch is not None


def test_without_torch_only_bare_modules_are_loaded(observe, here):
    (here / "bare.py").write_text(
        "import sys\nprint(sorted(m for m in sys.modules if 'perfdoctor' not in m))\nprint(sys.path)\n"
    )
    seen = observe("bare.py", cwd=here)
    seen.same()
    assert seen.processes[0].torch is None


def test_user_modules_are_found_under_names_that_we_use(observe, here):
    names = ["queue", "resource", "records", "probe", "loop", "calls", "process", "control", "stop", "json", "sites"]
    for name in names:
        (here / f"{name}.py").write_text(f"print('mine: {name}')\n")
    (here / "job.py").write_text("".join(f"import {name}\n" for name in names))
    seen = observe("job.py", cwd=here)
    seen.same()
    assert seen.bare.stdout.count("mine") == len(names)


@pytest.mark.parametrize("names", [["resource", "records", "probe"], ["json"], ["random"]])
def test_user_modules_that_torch_meets_too(observe, here, names):
    for name in names:
        (here / f"{name}.py").write_text(f"print('mine: {name}')\n")
    (here / "job.py").write_text("import torch\nprint(torch.ones(2).sum().item())\n" + f"import {', '.join(names)}\n")
    seen = observe("job.py", cwd=here)
    seen.same()
    assert "mine" in seen.bare.stdout


def test_the_users_own_sitecustomize_runs(observe, here):
    (here / "sitecustomize.py").write_text("import sys\nprint('customised', sys.path[0])\nVALUE = 3\n")
    (here / "job.py").write_text("import sitecustomize\nprint(sitecustomize.VALUE, sitecustomize.__file__)\n")
    seen = observe("job.py", cwd=here, env={"PYTHONPATH": str(here)})
    seen.same()
    assert "customised" in seen.bare.stdout
    assert len(seen.processes) == 1


@pytest.mark.parametrize("body", ["raise KeyError('own')", "import nowhere", "import sys; sys.exit(5)", "1 +"])
def test_the_users_own_sitecustomize_may_fail(observe, here, body):
    (here / "sitecustomize.py").write_text(body + "\n")
    (here / "job.py").write_text("print('ran')\n")
    seen = observe("job.py", cwd=here, env={"PYTHONPATH": str(here)})
    assert seen.probed.stdout == seen.bare.stdout
    assert seen.probed.code == seen.bare.code
    shown = [line for line in seen.probed.stderr.splitlines() if line in seen.bare.stderr]
    assert shown[-1:] == seen.bare.stderr.splitlines()[-1:]


def test_no_sitecustomize_stays_behind_when_there_is_none(observe, here):
    (here / "job.py").write_text("import sys\nprint('sitecustomize' in sys.modules)\nimport sitecustomize\n")
    seen = observe("job.py", cwd=here)
    seen.same()
    assert "ModuleNotFoundError" in seen.bare.stderr


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_flags_that_skip_the_way_in_leave_the_job_alone(observe, here, flag):
    (here / "job.py").write_text("import sys\nprint(sys.flags.isolated, len(sys.argv))\n")
    seen = observe("job.py", cwd=here, flags=[flag])
    seen.same()
    assert seen.processes == ()


def test_a_package_run_as_a_module(observe, here):
    (here / "package").mkdir()
    (here / "package" / "__init__.py").write_text("")
    (here / "package" / "train.py").write_text("import sys, torch\nprint(sys.argv, sys.path, __name__, __package__)\n")
    seen = observe("package.train", "x", cwd=here, flags=["-m"])
    seen.same()
    assert seen.processes[0].header.module == "package.train"


@pytest.mark.parametrize(
    "body",
    ["raise OSError('libcudart.so.12: cannot open shared object file')", "import not_there", "def broken(:"],
)
def test_a_torch_that_cannot_be_imported_says_the_same(observe, here, body):
    (here / "torch").mkdir()
    (here / "torch" / "__init__.py").write_text(f"print('half')\n{body}\n")
    (here / "job.py").write_text("def main():\n    import torch\n\nmain()\n")
    seen = observe("job.py", cwd=here)
    seen.same()
    assert seen.bare.code == 1
    (process,) = seen.processes
    assert process.torch is not None and process.torch.error


def test_looking_for_torch_is_not_importing_it(observe, here):
    (here / "job.py").write_text(
        "import importlib.util, sys\n"
        "spec = importlib.util.find_spec('torch')\n"
        "print(spec.origin, type(spec.loader).__name__, 'torch' in sys.modules)\n"
        "print(importlib.util.find_spec('torch').submodule_search_locations)\n"
        "import torch\n"
        "print(torch.__spec__.origin == spec.origin, 'exec_module' in vars(torch.__loader__))\n"
    )
    seen = observe("job.py", cwd=here)
    seen.same()
    assert seen.processes[0].torch is not None
    assert seen.processes[0].faults == ()


def test_a_run_directory_that_is_not_there(observe, here, tmp_path):
    (here / "job.py").write_text("import torch\nprint(torch.ones(1))\n")
    observe("job.py", cwd=here, run=tmp_path / "missing").same()


@pytest.mark.slow
def test_a_warning_points_to_the_users_line(observe, here):
    (here / "job.py").write_text(
        "import torch, warnings\n"
        "warnings.simplefilter('always')\n"
        "from torch.utils.data import DataLoader\n"
        "DataLoader([1, 2], pin_memory_device='cpu')\n"
        "loader = DataLoader([1, 2], num_workers=99)\n"
        "m = torch.nn.Linear(1, 1)\n"
        "m.register_backward_hook(lambda *a: None)\n"
        "o = torch.optim.SGD(m.parameters(), lr=1)\n"
        "s = torch.optim.lr_scheduler.StepLR(o, 1)\n"
        "for _ in range(3):\n"
        "    s.step()\n"
        "    m(torch.ones(1, 1)).sum().backward(create_graph=True)\n"
        "    o.step()\n"
    )
    seen = observe("job.py", cwd=here)
    seen.same()
    assert re.search(r"Warning", seen.bare.stderr)
