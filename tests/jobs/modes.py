"""Trains under modes of its own, in several ways, one per forked child, as in loops.py; says what FLOPs were counted
and which modes are left."""

import contextlib

import loops
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

STEPS = 60


class Heard(TorchDispatchMode):
    """Asks of each result whether it is finite."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            torch.isfinite(result).all()  # memory that is only allocated need not be
        return result


class Called(TorchFunctionMode):
    """Hears of functions, and does nothing about them."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def train(around, evaluated=contextlib.nullcontext):
    model, optimizer, criterion = loops.setup()
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
    said = []
    for step in range(STEPS):
        with around(step) as mode:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
        optimizer.step()
        if isinstance(mode, FlopCounterMode):
            said.append(mode.get_total_flops())
        if step % 10 == 9:
            model.eval()
            with torch.no_grad(), evaluated():
                model(x)
            model.train()
    print(sum(said), torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), sorted(vars(Heard)))
    return model


def each_step():
    return train(lambda step: Heard())  # entered here


def counted():
    return train(lambda step: FlopCounterMode(display=False))


def functions():
    return train(lambda step: Called())


def once():
    return train(lambda step: Heard() if step == 12 else contextlib.nullcontext())


def evaluating():
    return train(lambda step: contextlib.nullcontext(), Heard)


def checkpointed():
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    model, optimizer, criterion = loops.setup()
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
    kept = [torch.ops.aten.addmm.default]
    for _ in range(STEPS):
        optimizer.zero_grad()
        result = checkpoint(
            model, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(kept)
        )
        criterion(result, y).backward()
        optimizer.step()
    return model


def whole():
    with Heard():
        return train(lambda step: contextlib.nullcontext())


def device():
    return train(lambda step: torch.device("cpu"))


def default():
    torch.set_default_device("cpu")
    model = train(lambda step: contextlib.nullcontext())
    torch.set_default_device(None)
    return model


if __name__ == "__main__":
    loops.main(globals())
