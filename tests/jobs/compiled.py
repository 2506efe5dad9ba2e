"""torch.compile, export, fx and TorchScript beside training; one style per forked child, as in loops.py."""

import subprocess
import sys
import tempfile

import facts
import loops
import sympy  # noqa: F401 - a second, which each child would take when Dynamo comes
import torch
from torch import nn


def counts():
    """What Dynamo did."""
    from torch._dynamo.utils import counters

    return {
        "unique_graphs": counters["stats"]["unique_graphs"],
        "calls": counters["stats"]["calls_captured"],
        "breaks": sum(counters["graph_break"].values()),
        "recompiles": sum(counters["recompiles"].values()),
        "skips": sum(counters["unimplemented"].values()),
    }


def training(wrap, steps=30, backend="aot_eager"):
    model, optimizer, criterion = loops.setup()
    compiled = wrap(model, backend)
    loops.train(compiled, optimizer, criterion, loops.data(), steps)
    facts.show("counts", counts())
    return model


def model_eager():
    return training(lambda model, backend: torch.compile(model, backend=backend), backend="eager")


def model_aot():
    return training(lambda model, backend: torch.compile(model, backend=backend))


def model_inductor():
    return training(lambda model, backend: torch.compile(model, backend=backend), backend="inductor", steps=16)


def method():
    def wrap(model, backend):
        model.compile(backend=backend)
        return model

    return training(wrap)


def nested_sequential():
    """A root whose class is also that of its parts."""
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Sequential(nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loops.train(model, optimizer, nn.CrossEntropyLoss(), loops.data(), 10)
    model.compile(backend="aot_eager")
    loops.train(model, optimizer, nn.CrossEntropyLoss(), loops.data(), 20)
    facts.show("counts", counts())
    return model


def after_some_steps():
    model, optimizer, criterion = loops.setup()
    loops.train(model, optimizer, criterion, loops.data(), 11)
    compiled = torch.compile(model, backend="aot_eager")
    loops.train(compiled, optimizer, criterion, loops.data(), 19)
    facts.show("counts", counts())
    return model


def part():
    """Only an inner module is compiled."""
    model, optimizer, criterion = loops.setup()
    loops.train(model, optimizer, criterion, loops.data(), 5)
    model.layers = torch.compile(model.layers, backend="aot_eager")
    loops.train(model, optimizer, criterion, loops.data(), 20)
    facts.show("counts", counts())
    return model


def step_function():
    """Forward, backward and optimizer in one compiled function."""
    model, optimizer, criterion = loops.setup()

    @torch.compile(backend="aot_eager")
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for x, y in loops.data():
        step(x, y)
    facts.show("counts", counts())
    return model


def loss_function():
    model, optimizer, criterion = loops.setup()
    loss = torch.compile(lambda x, y: criterion(model(x), y), backend="aot_eager")
    for x, y in loops.data():
        optimizer.zero_grad()
        loss(x, y).backward()
        optimizer.step()
    facts.show("counts", counts())
    return model


def optimizer_step():
    model, optimizer, criterion = loops.setup()
    step = torch.compile(optimizer.step, backend="aot_eager")
    for x, y in loops.data(40):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        step()
    facts.show("counts", counts())
    return model


def epoch_function():
    """The whole epoch, loader and all, in one compiled function."""
    model, optimizer, criterion = loops.setup()

    @torch.compile(backend="eager")
    def epoch(loader):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

    epoch(loops.data(48))
    facts.show("counts", counts())
    return model


def lines(graph):
    return [str(node) for node in graph.graph.nodes]


class Leafy(nn.Module):
    """Holds both a class that is a root elsewhere, and plain layers."""

    def __init__(self):
        super().__init__()
        self.net = loops.Net()
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        return self.head(self.net(x))


def other_tracers():
    """fx, TorchScript and export, before training, while modules are watched, and after."""
    model, head = loops.Net(), nn.Linear(2, 2)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    criterion = nn.CrossEntropyLoss()
    x = torch.randn(4, 8)

    def tracers(when):
        torch.manual_seed(1)
        copy = Leafy().eval()
        facts.show(when + " fx", lines(torch.fx.symbolic_trace(copy)))
        facts.show(when + " script", torch.jit.script(copy).code)
        facts.show(when + " trace", torch.jit.trace(copy, x).code)
        facts.show(when + " scripted grad", torch.jit.script(gradient).code)
        facts.show(when + " sum", torch.jit.script(gradient)(torch.ones(2, requires_grad=True)).sum().item())
        for strict in (False, True):
            facts.show(when + " export", lines(torch.export.export(copy, (x,), strict=strict).graph_module))
        facts.show(when + " sizes", [facts.pickled(copy, model), facts.saved(copy), facts.saved(model)])

    def steps(n):
        for x, y in loops.data(4 * n):
            optimizer.zero_grad()
            criterion(head(model(x)), y).backward()
            optimizer.step()

    tracers("before")
    steps(1)
    tracers("watched")
    steps(10)
    tracers("after")
    steps(10)
    facts.show("counts", counts())
    return model


def gradient(x: torch.Tensor) -> torch.Tensor:
    y = (x * x).sum()
    found = torch.autograd.grad([y], [x])[0]
    assert found is not None
    return found


def by_value():
    """cloudpickle takes a class along by value; it must be of use to a process without us."""
    import cloudpickle

    model, optimizer, criterion = loops.setup()
    loops.train(model, optimizer, criterion, loops.data())
    cloudpickle.register_pickle_by_value(loops)
    x = torch.randn(4, 8)
    with tempfile.NamedTemporaryFile() as file:
        file.write(cloudpickle.dumps((model.eval(), x, model(x))))
        file.flush()
        script = f"import pickle; m, x, y = pickle.load(open({file.name!r}, 'rb')); print((m(x) == y).all().item())"
        command = [sys.executable, "-I", "-c", script]
        outcome = subprocess.run(command, capture_output=True, text=True)
        print(outcome.returncode, outcome.stdout, outcome.stderr[-300:], flush=True)
    return model


if __name__ == "__main__":
    loops.main(globals())
