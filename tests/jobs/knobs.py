"""Sets torch's threads, oneDNN and the model's type in several ways, one per forked child, as in loops.py."""

import sys
import tracemalloc

import loops
import torch
from torch import nn

CONFIG = {"threads": 1}


def assigned():
    torch.set_num_threads(2)
    torch.set_num_threads(1)
    torch.backends.mkldnn.enabled = False
    return trained()


def configured():
    torch.set_num_threads(CONFIG["threads"])
    return trained()


def called():
    torch.backends.mkldnn.set_flags(False)
    return trained()


def untouched():
    torch.backends.mkldnn.set_flags(True)
    with torch.backends.mkldnn.flags(enabled=False):
        pass
    return trained()


def enclosed():
    flags = torch.backends.mkldnn.flags(deterministic=False)
    with flags:
        return trained()


def tracing():
    tracemalloc.start(3)
    return untouched()


def traced():
    sys.settrace(lambda frame, event, argument: None)
    return untouched()


def trained():
    model = loops.train(*loops.setup(), loops.data())
    print("knobs", torch.get_num_threads(), torch.backends.mkldnn.enabled)
    return model


def double_by_type():
    model = nn.Linear(4, 1).to("cpu").to(torch.float32)
    return trained_in_double(model.to(torch.float64))  # here


def double_by_name():
    model = nn.Linear(4, 1).to("cpu").to(torch.float32)
    return trained_in_double(model.to(dtype=torch.float64))  # here


def double_by_tensor():
    model = nn.Linear(4, 1).to("cpu").to(torch.float32)
    return trained_in_double(model.to(torch.ones(1).double()))  # here


def trained_in_double(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
        optimizer.step()
    print("type", model.weight.dtype)
    return model


if __name__ == "__main__":
    loops.main(globals(), one_thread=False)
