"""Loop styles, one per forked child, so that torch is imported once: `python loops.py plain accumulate ...`."""

import atexit
import importlib
import os
import sys
import threading

import facts
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

STEPS = 30


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2))

    def forward(self, x):
        return self.layers(x)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.randn(4 * STEPS, 8))


def data(n=4 * STEPS, **kwargs):
    kwargs.setdefault("batch_size", 4)
    kwargs.setdefault("shuffle", True)
    return DataLoader(TensorDataset(torch.randn(n, 8), torch.randint(0, 2, (n,))), **kwargs)


def setup(**kwargs):
    model = Net(**kwargs)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), nn.CrossEntropyLoss()


def train(model, optimizer, criterion, loader, steps=STEPS):
    done = 0
    while done < steps:
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            done += 1
            if done == steps:
                break
    return model


def plain():
    model, optimizer, criterion = setup()
    loader = data()
    before = facts.pickled(model, optimizer), facts.saved(model), facts.saved(optimizer.state_dict())
    train(model, optimizer, criterion, loader)
    facts.show("pickles", [before, facts.pickled(model, optimizer, loader, Net, criterion), facts.saved(model)])
    return model


def no_loader():
    model, optimizer, criterion = setup()
    for _ in range(STEPS):
        optimizer.zero_grad()
        criterion(model(torch.randn(4, 8)), torch.randint(0, 2, (4,))).backward()
        optimizer.step()
    return model


def accumulate(k=3):
    model, optimizer, criterion = setup()
    for i, (x, y) in enumerate(data(4 * STEPS * k)):
        (criterion(model(x), y) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model


def accumulate_many():
    return accumulate(12)


def gan():
    first, second = Net(), nn.Sequential(nn.Linear(3, 8))
    one, two = torch.optim.Adam(first.parameters()), torch.optim.Adam(second.parameters())
    for x, _ in data():
        one.zero_grad()
        (first(x).mean() - first(second(torch.randn(4, 3)).detach()).mean()).backward()
        one.step()
        two.zero_grad()
        first(second(torch.randn(4, 3))).mean().backward()
        two.step()
    return nn.ModuleList([first, second])


def lbfgs():
    model, _, criterion = setup()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    for x, y in data():

        def closure():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model


def by_hand(loader=True):
    model, _, criterion = setup()
    source = data() if loader else ((torch.randn(4, 8), torch.randint(0, 2, (4,))) for _ in range(STEPS))
    for x, y in source:
        grads = torch.autograd.grad(criterion(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for parameter, grad in zip(model.parameters(), grads):
                parameter -= 0.01 * grad
    return model


def by_hand_no_loader():
    return by_hand(loader=False)


def evaluated(model):
    """Four batches, whose forward passes are no steps."""
    with torch.no_grad():
        return sum(model(torch.randn(4, 8)).sum().item() for _ in range(4))


def by_data():
    """`p.data`, whose changes no version counter shows, and an evaluation after every tenth step."""
    model, _, criterion = setup()
    for i in range(STEPS):
        model.zero_grad()
        criterion(model(torch.randn(4, 8)), torch.randint(0, 2, (4,))).backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad.data, alpha=-0.01)
        if i % 10 == 9:
            facts.show("evaluated", evaluated(model))
    return model


def accumulate_by_hand():
    model, _, criterion = setup()
    for i, (x, y) in enumerate(data(8 * STEPS)):
        criterion(model(x), y).backward()
        if i % 2:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
    return model


def functional():
    model, _, criterion = setup()
    model.eval()
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters, x, y):
        return criterion(torch.func.functional_call(model, parameters, (x,)), y)

    for i in range(STEPS):
        grads = torch.func.grad(loss)(parameters, torch.randn(4, 8), torch.randint(0, 2, (4,)))
        parameters = {name: parameter - 0.01 * grads[name] for name, parameter in parameters.items()}
        if i % 10 == 9:
            facts.show("evaluated", evaluated(lambda x: torch.func.functional_call(model, parameters, (x,))))
    model.load_state_dict(parameters)
    return model


class Momentum:
    """An optimizer that torch knows nothing of."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.speeds = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self):
        torch._foreach_mul_(self.speeds, 0.9)
        torch._foreach_add_(self.speeds, [parameter.grad for parameter in self.parameters])
        torch._foreach_add_(self.parameters, self.speeds, alpha=-0.01)
        for parameter in self.parameters:
            parameter.grad = None


def own_optimizer():
    model, _, criterion = setup()
    optimizer, validation = Momentum(model.parameters()), data(16)
    for i, (x, y) in enumerate(data()):
        criterion(model(x), y).backward()
        optimizer.step()
        if i % 10 == 9:
            model.eval()
            with torch.no_grad():
                facts.show("evaluated", sum(model(x).sum().item() for x, _ in validation))
            model.train()
    return model


def held_out():
    """Scores of the same tensor after each step."""
    model, optimizer, criterion = setup()
    x, y = torch.randn(20_000, 8), torch.randint(0, 2, (20_000,))
    for i, (batch, labels) in enumerate(data()):
        optimizer.zero_grad()
        criterion(model(batch), labels).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x).argmax(1) == y).sum().item()
        model.train()
        if i % 10 == 9:
            facts.show("right", right)
    return model


def infer():
    model = Net().eval()
    with torch.no_grad():
        facts.show("sum", sum(model(x).sum().item() for x, _ in data()))
    return model


def infer_eval_with_grad():
    model = Net().eval()
    facts.show("sum", sum(model(x).sum().item() for x, _ in data()))
    return model


def infer_no_loader():
    model = Net().eval()
    for _ in range(STEPS):
        with torch.inference_mode():
            model(torch.randn(4, 8)).sum()
    return model


def infer_train_mode():
    model = Net()
    with torch.inference_mode():
        for x, _ in data():
            model(x).sum()
    return model


def inference_after_training():
    """Forwards with gradients, then some in inference mode: no window may open in one and close in the other."""
    model = Net()
    for i in range(3 * STEPS):
        if i % 5 < 3:
            model(torch.randn(4, 8)).sum().backward()
        else:
            with torch.inference_mode():
                model(torch.randn(4, 8)).sum()
    return model


def rollout_first():
    """As in reinforcement learning: forwards alone, then an update, in turns."""
    model, optimizer, _ = setup()
    for _ in range(4):
        with torch.no_grad():
            for _ in range(20):
                model(torch.randn(4, 8)).sum()
        for _ in range(20):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return model


def validated():
    """Training with a validation pass that forgets no_grad."""
    model, optimizer, criterion = setup()
    loader, validation = data(40), data(16)
    for _ in range(3):
        model.train()
        train(model, optimizer, criterion, loader, steps=10)
        model.eval()
        for x, y in validation:
            criterion(model(x), y).item()
    return model


def per_parameter():
    """Optimizers that step inside the backward pass."""
    model, _, criterion = setup()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for x, y in data():
        criterion(model(x), y).backward()
    return model


class Moody(torch.optim.SGD):
    calls = 0

    def step(self, closure=None):
        Moody.calls += 1
        if Moody.calls % 3 == 0:
            raise ArithmeticError("not today")
        return super().step(closure)


def raising_step():
    model, _, criterion = setup()
    optimizer = Moody(model.parameters(), lr=0.01)
    caught = 0
    for x, y in data():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        try:
            optimizer.step()
        except ArithmeticError:
            caught += 1
            sum(range(200_000))
    facts.show("caught", caught)
    return model


def skipped_steps():
    model, optimizer, criterion = setup()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for i, (x, y) in enumerate(data()):
        optimizer.zero_grad()
        scaler.scale(criterion(model(x), y) * (float("inf") if i % 5 == 0 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
    return model


def loader_elsewhere():
    """A thread that prefetches from the loader, as many home-made loops have one."""
    import queue

    model, optimizer, criterion = setup()
    ready = queue.Queue(2)

    def fill():
        for batch in data():
            ready.put(batch)
        ready.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    while (batch := ready.get()) is not None:
        optimizer.zero_grad()
        criterion(model(batch[0]), batch[1]).backward()
        optimizer.step()
    thread.join()
    return model


def trained_elsewhere():
    """Main thread does a forward, another thread trains."""
    model, optimizer, criterion = setup()
    model(torch.randn(4, 8))
    thread = threading.Thread(target=train, args=(model, optimizer, criterion, data()))
    thread.start()
    thread.join()
    return model


def fresh_iterators():
    model, optimizer, criterion = setup()
    loader = data()
    for _ in range(STEPS):
        x, y = next(iter(loader))
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return model


def collate(samples):
    return torch.stack([s[0] for s in samples]), torch.stack([s[1] for s in samples])


def loaders():
    """The kinds of loaders, in the training process."""
    model, optimizer, criterion = setup()
    sampler = torch.utils.data.BatchSampler(range(40), 4, drop_last=True)
    for loader in (
        data(40, collate_fn=collate),
        data(40, batch_size=1, shuffle=False, batch_sampler=sampler),
        data(40, pin_memory=True),
        data(40, batch_size=None, shuffle=False, sampler=sampler),
    ):
        train(model, optimizer, criterion, loader, steps=10)
    for x in DataLoader(Stream(), batch_size=4):
        criterion(model(x), torch.zeros(4, dtype=torch.long)).backward()
        optimizer.step()
    facts.show("pickles", facts.pickled(data(40, collate_fn=collate), data(40, batch_size=4)))
    return model


def own_mode():
    """A dispatch mode of the job's around every step, and one that comes and goes."""
    from torch.utils.flop_counter import FlopCounterMode

    model, optimizer, criterion = setup()
    with FlopCounterMode(display=False) as counter:
        train(model, optimizer, criterion, data(), steps=20)
    facts.show("flops", counter.get_total_flops())
    total = 0
    for i in range(4):
        with FlopCounterMode(display=False) as counter:
            train(model, optimizer, criterion, data(), steps=7)
        total += counter.get_total_flops()
        train(model, optimizer, criterion, data(), steps=7 + i)
    facts.show("flops", total)
    return model


def mode_from_step_11():
    """The job's mode begins after our window has opened, and outlives it."""
    from torch.utils.flop_counter import FlopCounterMode

    model, optimizer, criterion = setup()
    loader = data()
    train(model, optimizer, criterion, loader, steps=11)
    with FlopCounterMode(display=False) as counter:
        train(model, optimizer, criterion, loader, steps=19)
    facts.show("flops", counter.get_total_flops())
    train(model, optimizer, criterion, loader, steps=10)
    return model


def own_profiler():
    model, optimizer, criterion = setup()
    names = []

    def ready(profiler):
        names.append(sum(event.count for event in profiler.key_averages() if event.key == "aten::addmm"))

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=15, warmup=1, active=3),
        on_trace_ready=ready,
    ) as profiler:
        for x, y in data():
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
            profiler.step()
    with torch.autograd.profiler.profile() as profile:
        model(torch.randn(4, 8))
    facts.show("profiled", [names, sum(e.count for e in profile.key_averages() if e.key == "aten::addmm")])
    return model


def forks():
    """A child in every step, by fork and by subprocess."""
    import subprocess

    model, optimizer, criterion = setup()
    codes = []
    for x, y in data():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        child = os.fork()
        if child == 0:
            os._exit(torch._C._len_torch_dispatch_stack() + torch.autograd._profiler_enabled())
        codes.append(os.waitpid(child, 0)[1])
        optimizer.step()
    codes.append(subprocess.call(["true"]))
    facts.show("children", codes)
    return model


def layers_one_by_one():
    """No module of its own: layers called from the loop, more than it pays to time."""
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(40))
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
    for x, _ in data():
        for layer in layers:
            x = layer(x)
        optimizer.zero_grad()
        x.mean().backward()
        optimizer.step()
    return layers


def many_kinds():
    """Layers whose results must not change in the last bit while a window is open."""

    class Zoo(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(1, 4, 3)
            self.norm = nn.BatchNorm1d(4)
            self.lstm = nn.LSTM(6, 5, batch_first=True)
            self.attention = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
            self.last = nn.Linear(5, 2)

        def forward(self, x):
            h = self.norm(self.conv(x[:, None])).transpose(1, 2)
            h = torch.nn.functional.pad(h, (0, 2))
            return self.last(self.lstm(self.attention(h))[0][:, -1])

    model = Zoo()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return train(model, optimizer, nn.CrossEntropyLoss(), data())


def main(styles=None, one_thread=True):
    """One child for each style named; `one_thread=False` leaves torch's threads to the style."""
    styles = styles or globals()
    if len(sys.argv) > 2:
        # An optimizer's first step does that, a second of it, in every child anew.
        importlib.import_module("torch._dynamo")
    for name in sys.argv[1:]:
        pid = os.fork()
        if pid:
            if os.waitpid(pid, 0)[1]:
                print(name, "failed", flush=True)
            continue
        if "JOB_PIDS" in os.environ:
            with open(os.environ["JOB_PIDS"], "a") as file:
                file.write(f"{name} {os.getpid()}\n")
        facts.seed()
        if one_thread:
            torch.set_num_threads(1)
        model = styles[name]()
        print(name, facts.digest([*model.parameters(), *model.buffers()]), facts.randomness())
        facts.show("process", facts.process())
        if name != sys.argv[-1]:
            _leave()
        sys.exit()  # as an ordinary process does


def _leave():
    """What an ordinary exit does, but for taking the interpreter apart: in a forked child that copies every page that
    holds an object of torch's, nearly a second of it. The last child does that, too."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
