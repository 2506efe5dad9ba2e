"""The model compiled for a while. With a backend that takes no time: which one compiles is not what is tested."""

from __future__ import annotations

import pytest
import torch
from remedy_job import Job
from torch import nn

from perfdoctor.injected._perfdoctor_probe import compiler
from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.compiling import Compile, CompileOff


class Backend:
    """Runs what it is given, and counts how often it was asked to compile."""

    def __init__(self) -> None:
        self.compiled = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: object) -> object:
        self.compiled += 1
        return graph.forward


def remedy_of(job: Job, backend: object) -> Compile:
    remedy = Compile(job)
    remedy.backend = backend  # type: ignore[assignment]
    return remedy


def test_a_model_is_compiled_once_however_often_it_is_put_in_place() -> None:
    job, backend = Job(), Backend()
    before = job.settings()
    for _ in range(2):
        remedy = remedy_of(job, backend)
        remedy.apply()
        job.step()
        job.step()
        assert remedy.lost() == ""
        remedy.withdraw()
        assert job.settings()["forward"] == before["forward"]
    assert backend.compiled >= 1
    seen = backend.compiled
    job.step()
    assert backend.compiled == seen, "afterwards nothing is compiled"


def test_a_job_that_compiles_by_itself_is_left_alone() -> None:
    job = Job()
    job.discovery.compiled = True
    remedy = remedy_of(job, Backend())
    with pytest.raises(UnsuitableError, match="is compiled"):
        remedy.apply()
    remedy.withdraw()


def test_what_cannot_be_compiled_runs_as_it_is_and_says_so() -> None:
    def broken(graph: torch.fx.GraphModule, inputs: object) -> object:
        raise RuntimeError("no such instruction")

    job = Job()
    remedy = remedy_of(job, broken)
    remedy.apply()
    job.step()
    assert "compile" in remedy.lost()
    remedy.withdraw()


def test_without_a_compiler_it_says_which_one_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    monkeypatch.setenv("CXX", "")
    remedy = Compile(Job())
    with pytest.raises(UnsuitableError, match=r"needs a C\+\+ compiler on the CPU, and there is no"):
        remedy.apply()
    remedy.withdraw()


def test_a_forward_of_the_jobs_own_is_not_replaced() -> None:
    job = Job()
    job.model.forward = nn.Identity().forward  # type: ignore[method-assign]
    remedy = remedy_of(job, Backend())
    with pytest.raises(UnsuitableError, match="forward of its own"):
        remedy.apply()
    remedy.withdraw()
    assert "forward" in job.model.__dict__


def test_what_the_job_compiles_runs_in_python_for_a_while_and_then_as_compiled_before() -> None:
    backend = Backend()
    job = Job()
    job.discovery.compiled = True
    function = torch.compile(lambda values: torch.sin(values) + torch._dynamo.is_compiling(), backend=backend)
    compiled = function(torch.zeros(3)).sum()
    remedy = CompileOff(job)
    remedy.apply()
    assert function(torch.zeros(3)).sum() != compiled and remedy.lost() == ""
    torch.compiler.set_stance("default")
    assert "stance of its own" in remedy.lost()
    remedy.withdraw()
    assert function(torch.zeros(3)).sum() == compiled and backend.compiled == 1


def test_a_job_that_compiles_nothing_has_nothing_to_switch_off() -> None:
    remedy = CompileOff(Job())
    with pytest.raises(UnsuitableError, match="does not call"):
        remedy.apply()
    remedy.withdraw()
