"""`%%perfdoctor`, typed into a real shell of IPython."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output

from perfdoctor.notebook import magic

Cell = Callable[[str], tuple[Any, str, list[RichOutput]]]

TRAINING = """%%perfdoctor --steps 30 --fail-on never
import gc
import torch
from beside import WIDTH

model = torch.nn.Linear(WIDTH, WIDTH)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    loss = model(torch.randn(32, WIDTH)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gc.collect()
"""


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """Runs a cell in `tmp_path`: its result, what it printed, and what it displayed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "perfdoctor")

    def run(code: str) -> tuple[Any, str, list[RichOutput]]:
        with capture_output() as captured:
            result = shell.run_cell(code)
        return result, captured.stdout, captured.outputs

    yield run
    InteractiveShell.clear_instance()


@pytest.mark.e2e
@pytest.mark.slow
def test_the_code_of_a_cell_is_checked_in_a_process_of_its_own(cell: Cell, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WIDTH = 64\n")
    result, _, outputs = cell(TRAINING)
    assert result.success
    (output,) = outputs
    assert "PD04.explicit-collect" in output.data["text/markdown"]
    assert ".perfdoctor/cells/cell-1.py:12" in output.data["text/markdown"]
    assert "iframe" in output.data["text/html"]
    with pytest.raises(NameError):
        cell("model")[0].raise_error()


@pytest.mark.e2e
@pytest.mark.slow
def test_a_cell_that_fails_shows_its_traceback_and_counts_as_failed(cell: Cell) -> None:
    result, printed, _ = cell("%%perfdoctor\nimport torch\n1 / 0\n")
    assert "Traceback (most recent call last):\n" in printed
    assert 'cells/cell-1.py", line 2, in <module>' in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert isinstance(result.error_in_exec, magic.CellFailedError)


def test_wrong_options_are_told_below_the_cell(cell: Cell) -> None:
    result, printed, outputs = cell("%%perfdoctor --no-such-option\npass\n")
    assert "--no-such-option" in printed
    assert outputs == []
    assert str(result.error_in_exec) == "perfdoctor check ended with 2."


PATIENT = """
import subprocess, sys, time

def wait(name, wait, *begun):
    try:
        print(*begun, file=sys.stderr, flush=True)
        wait()
    except KeyboardInterrupt:
        open(name, "w").close()

if sys.argv[1:]:
    wait("job", lambda: time.sleep(60), "begun")
else:
    job = subprocess.Popen([sys.executable, __file__, "job"])
    wait("perfdoctor", job.wait)
"""


@pytest.mark.e2e
def test_interrupting_the_cell_is_ctrl_c_to_perfdoctor_and_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(printed: str, **_: object) -> None:
        if "begun" in printed:
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(magic, "print", interrupted, raising=False)
    Path("patient.py").write_text(PATIENT)
    with pytest.raises(KeyboardInterrupt):
        magic._run([sys.executable, "patient.py"])
    assert Path("job").exists() and Path("perfdoctor").exists()
