"""Networks of all kinds for the table of layers: `python layers.py shared raises ...`, one per forked child."""

import sys
import threading

import facts
import loops
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def hooks_around_all() -> bool:
    kinds = ("forward", "forward_pre", "backward")
    return any(getattr(nn.modules.module, f"_global_{kind}_hooks") for kind in kinds)


def steps(model, source, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for x in source:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    facts.show(
        "hooks",
        hooks_around_all(),
    )
    return model


def batches():
    return torch.randn(loops.STEPS, 4, 8)


class Twice(nn.Module):
    """One layer under two names, called three times."""

    def __init__(self):
        super().__init__()
        self.one = self.other = nn.Linear(8, 8)
        self.big = nn.Linear(8, 512)

    def forward(self, x):
        return self.big(self.one(self.other(self.one(x)))).sum(1)


def shared():
    return steps(Twice(), batches())


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


def recomputed():
    return steps(Recomputed(), batches())


class Moody(nn.Module):
    """Fails in the middle of every second call."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x):
        self.calls += 1
        x = self.first(x)
        if self.calls % 2 == 0:
            raise ArithmeticError("not today")
        return self.second(x)


def raises():
    model = Moody()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    caught = 0
    for x in batches():
        optimizer.zero_grad()
        try:
            model(x).sum().backward()
        except ArithmeticError:
            caught += 1
        optimizer.step()
    facts.show("caught", caught)
    facts.show(
        "hooks",
        hooks_around_all(),
    )
    return model


def functional():
    """No module at all."""
    weight = nn.Parameter(torch.randn(8, 8))
    holder = nn.ParameterList([weight])
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for x in batches():
        optimizer.zero_grad()
        torch.relu(x @ weight).sum().backward()
        optimizer.step()
    return holder


def own_hooks():
    """The job watches every module itself."""
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, result: seen.append(1))
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in batches():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    handle.remove()
    facts.show("seen", len(seen))
    return model


def beside():
    """Another thread runs the same layers meanwhile."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    stop = threading.Event()

    def judge():
        with torch.no_grad():
            while not stop.is_set():
                model[0](torch.zeros(1, 8))

    thread = threading.Thread(target=judge)

    def source():
        for number, x in enumerate(batches()):
            if number == 5:
                thread.start()
            yield x

    steps(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)), source())
    stop.set()
    thread.join()
    return model


def loop():
    """A loss that goes through the batch one by one, and reads of every gradient."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    total = 0.0
    for x in torch.randn(loops.STEPS, 40, 8):
        optimizer.zero_grad()
        output = model(x)
        loss = 0.0
        for i in range(40):
            loss = loss + output[i].pow(2).mean()
        loss.backward()
        total += sum(p.grad.norm().item() for p in model.parameters())
        optimizer.step()
    facts.show("total", total)
    return model


class World:
    """A state that each action changes."""

    def __init__(self):
        self.state = torch.zeros(8)

    def step(self, action):
        self.state = 0.9 * self.state + action
        return self.state.detach()


def rollout():
    """A policy acts 30 times per step, each time on what the last action led to."""
    policy = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    for _ in range(loops.STEPS):
        world = World()
        seen, rewards = world.state, []
        for _ in range(30):
            action = policy(seen).tanh()
            seen = world.step(action)
            rewards.append(action.sum())
        optimizer.zero_grad()
        sum(rewards).backward()
        optimizer.step()
    return policy


if __name__ == "__main__":
    loops.main({name: value for name, value in globals().items() if name in sys.argv[1:]})
