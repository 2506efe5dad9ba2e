"""One illness at a time, or its cure: `ill.py NAME [cured]`."""

import contextlib
import queue
import sys
import tempfile
import threading
import time
from concurrent.futures import Future

import numpy as np
import tiny
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

ENDLESS = 1_000_000


class Slow(Dataset):
    """Waits for each sample, as for a far-away disk."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.full((16,), index / 512), index % 2


def workers(cured):
    loader = DataLoader(Slow(), batch_size=8, num_workers=4 if cured else 0, persistent_workers=cured)
    tiny.train(ENDLESS, loader, sleep_s=0.03)


def pairs(cured):
    """Each step draws from a quick loader too."""
    model, optimizer, criterion = tiny.setup()
    stored = Slow()
    quick = tiny.batches(count=512)
    slow = DataLoader(stored, batch_size=8, num_workers=4 if cured else 0, persistent_workers=cured)
    while True:
        for (inputs, labels), (more, _) in zip(quick, slow, strict=False):
            time.sleep(0.03)
            optimizer.zero_grad()
            (criterion(model(inputs), labels) + model(more).square().mean()).backward()
            optimizer.step()


def filter_bank(bands):
    """Filters that are computed number by number."""
    filters = np.zeros((bands, 256), dtype=np.float32)
    for band in range(bands):
        for place in range(256):
            filters[band, place] = max(0.0, 1 - abs(place / 16 - band))
    return filters


class Filtered(Dataset):
    """Samples with noise, through a filter bank that is made once, or for each of them."""

    def __init__(self, once):
        self.filters = filter_bank(16) if once else None
        self.waves = np.random.rand(512, 256).astype(np.float32)

    def __len__(self):
        return 512

    def __getitem__(self, index):
        filters = filter_bank(16) if self.filters is None else self.filters  # each time
        noise = np.random.rand(256).astype(np.float32)
        return torch.from_numpy(filters @ (self.waves[index] + noise)), index % 2


def banked(cured):
    tiny.train(ENDLESS, DataLoader(Filtered(cured), batch_size=8), sleep_s=0.02)


class Computed(Dataset):
    """Samples in which nothing is random, computed each time they are asked for."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        grid = np.linspace(0, index + 1, 80_000)
        wave = np.sin(grid)  # asked for again
        return torch.from_numpy(wave.reshape(16, -1).mean(1).astype(np.float32)), index % 2


def remade(cured):
    """The cured one keeps its samples."""
    samples = Computed()
    kept = [samples[index] for index in range(len(samples))] if cured else samples
    tiny.train(ENDLESS, DataLoader(kept, batch_size=8), sleep_s=0.02)


def positioned(cured):
    """Positions are encoded in every step, or before the first."""

    def positions(length):
        return np.array([[np.sin(at / 10 ** (i / 16)) for i in range(16)] for at in range(length)], dtype=np.float32)

    model, optimizer, criterion = tiny.setup()
    inputs, labels, kept = torch.randn(64, 16), torch.randint(2, (64,)), positions(64)
    for _ in range(ENDLESS):
        encoded = kept if cured else positions(64)  # in every step
        optimizer.zero_grad()
        criterion(model(inputs * torch.rand(1) + torch.from_numpy(encoded)), labels).backward()
        optimizer.step()


def collect(cured):
    import gc

    tiny.train(ENDLESS, sleep_s=0.02, at_step=(lambda step: None) if cured else (lambda step: gc.collect()))


def double(cured):
    dtype = torch.float32 if cured else torch.float64
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(128, 256, dtype=dtype), torch.randint(2, (128,))
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def unfrozen(cured):
    """Only the head learns."""
    backbone = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())))
    model = nn.Sequential(backbone, nn.Linear(256, 2))
    backbone.requires_grad_(not cured)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.01)
    inputs, labels = torch.randn(128, 256), torch.randint(2, (128,))
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def undetached(cured):
    """A critic whose loss goes back through the generator."""
    layers = (layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU()))
    generator, critic = nn.Sequential(*layers), nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 1))
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.01)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.01)
    noise, real = torch.randn(128, 256), torch.randn(128, 256)
    for _ in range(ENDLESS):
        fake = generator(noise).detach() if cured else generator(noise)  # no detach
        of_critic.zero_grad()
        (critic(fake) - critic(real)).mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(noise)).mean()).backward(inputs=list(generator.parameters()))
        of_generator.step()


def twice(cured):
    """The accuracy is of a second forward pass on the same batch."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hits = 0
    for _ in range(ENDLESS):
        inputs = torch.rand(256, 256)
        labels = (inputs.sum(1) > 128).long()
        output = model(inputs)
        loss = nn.functional.cross_entropy(output, labels)
        with torch.no_grad():
            guessed = output if cured else model(inputs)  # once more
            hits += (guessed.argmax(1) == labels).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def traced(cured):
    import tracemalloc

    import torch._dynamo  # noqa: F401 - an optimizer's first step does, for 40 s where it is traced

    if not cured:
        tracemalloc.start(10)
    tiny.train(ENDLESS, at_step=lambda step: [(number, [number]) for number in range(5_000)])


def counted(cured):
    """The operations of all steps are counted; or of none."""
    from torch.utils.flop_counter import FlopCounterMode

    with contextlib.nullcontext() if cured else FlopCounterMode(display=False):
        tiny.train(ENDLESS)


def hooked(cured):
    """Each step looks at the activations by a hook, and leaves it there."""
    model, inputs, seen = nn.Linear(32, 32), torch.randn(16, 32), torch.zeros(())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(ENDLESS):
        handle = model.register_forward_hook(lambda module, given, made: seen.add_(made.detach().mean()) and None)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if cured:
            handle.remove()


def churn(cured):
    """The cure is in the environment."""
    model = nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.ReLU(), nn.Linear(4096, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, labels = torch.randn(2200, 8), torch.randint(2, (2200,))
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


def history(cured):
    """The mean of all losses so far, anew in every step."""
    model, inputs = nn.Linear(32, 32), torch.randn(16, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, total = [], torch.zeros(())
    for _ in range(ENDLESS):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        total = total + loss.detach() if cured else torch.stack([one * 2 for one in losses]).sum()


def bank(cured):
    """What was computed in all steps so far, compared with in every step; or the newest of it."""
    model, inputs = nn.Linear(64, 64), torch.randn(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = torch.randn(64, 64)
    for _ in range(ENDLESS):
        made = model(inputs)
        loss = (made @ kept.T).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept = torch.cat([kept[-64:] if cured else kept, made.detach()])


def saves(cured):
    """A checkpoint every fifth step; one an epoch of 100."""
    model, inputs = nn.Linear(1024, 1024), torch.randn(64, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(ENDLESS):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            if step % (500 if cured else 5) == 4:
                torch.save({"model": model.state_dict()}, f"{folder}/last.pt")


def evaluate(cured):
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(48))).eval()
    loader = tiny.batches(count=256, width=256, batch_size=16)
    with torch.set_grad_enabled(not cured):
        while True:
            for inputs, _ in loader:
                print(model(inputs).mean().item())


def score(cured):
    """The accuracy on held-out data, after every step or every hundredth."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held_out, labels = torch.randn(4000, 64), torch.randint(8, (4000,))
    for step in range(ENDLESS):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(8, (64,))).backward()
        optimizer.step()
        if not cured or step % 100 == 0:
            with torch.no_grad():
                scores = model(held_out)
            print((scores.argmax(1) == labels).float().mean().item())


def faded(cured):
    """Layers with small weights one on top of another: what reaches the last ones, and all gradients, is subnormal."""
    torch.set_flush_denormal(cured)
    layers = [nn.Linear(192, 192, bias=False) for _ in range(28)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.002)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        model(torch.randn(64, 192)).sum().backward()  # faded
        optimizer.step()


def rebuild(cured):
    model, optimizer, criterion = tiny.setup()
    loader = tiny.batches(count=20_000, shuffle=True)
    if cured:
        tiny.train(ENDLESS, loader, model, optimizer, criterion, sleep_s=0.015)
    for _ in range(ENDLESS):
        inputs, labels = next(iter(loader))
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()


class Convolutions(nn.Module):
    """Convolutions and elementwise operators, the ones that instruction sets and oneDNN matter to."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.last = nn.Linear(32, 10)

    def forward(self, images):
        images = nn.functional.gelu(self.second(nn.functional.gelu(self.first(images))))
        return self.last(images.mean((2, 3)))


def _convolve(switch):
    model = Convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        with switch():
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()


def onednn(cured):
    # The trap: flags() switches off what it is not told to leave on.
    _convolve(lambda: torch.backends.mkldnn.flags(enabled=cured, deterministic=True))


def onednn_everywhere(cured):
    torch.backends.mkldnn.set_flags(cured)
    _convolve(contextlib.nullcontext)


class Attention(nn.Module):
    """Causal self-attention, made by hand or by torch."""

    def __init__(self, width, heads, by_hand):
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.by_hand = heads, by_hand

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
            y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        else:
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def _attend(length, by_hand):
    model = nn.Sequential(Attention(32, 4, by_hand), nn.ReLU(), Attention(32, 4, by_hand))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(2048 // length, length, 32)
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def attention(cured):
    _attend(512, not cured)


def short_attention(cured):
    """By hand too, but over so few positions that the fused kernel saves next to nothing."""
    _attend(8, not cured)


def classes(cured):
    """A softmax between layers, not over a product of the batch."""
    model = nn.Sequential(nn.Linear(64, 256, bias=cured), nn.Softmax(-1), nn.Linear(256, 64, bias=cured))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(16, 64, 64)
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def recurrent(cured):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.tag = nn.LSTM(16, 32), nn.Linear(32, 4)

        def forward(self, x):
            return self.tag(self.read(x)[0])

    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(20, 8, 16)
    for _ in range(ENDLESS):
        optimizer.zero_grad()
        with torch.backends.mkldnn.flags(enabled=cured):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()


def vector_extensions(cured):
    """The illness is in the environment."""
    _convolve(contextlib.nullcontext)


def batch(cured):
    """Two samples a step, whose weights are read and updated for each; cured, so many that the arithmetic counts."""
    width = 512
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(4096, width), torch.randint(2, (4096,)))
    size = 1024 if cured else 2
    loader = DataLoader(data, batch_sampler=None, sampler=Blocks(len(data), size), batch_size=None)
    while True:
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


class Blocks:
    """Index ranges, so that a batch is one slice."""

    def __init__(self, count, size):
        self.blocks = [slice(first, first + size) for first in range(0, count, size)]

    def __iter__(self):
        return iter(self.blocks)

    def __len__(self):
        return len(self.blocks)


def threads(cured):
    """Eight threads call one model of small layers; cured, they leave it to one thread, which batches."""
    model = nn.Sequential(*(layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.ReLU()))).eval()
    inputs, requests = torch.randn(1, 64), queue.Queue()

    def answer(inputs):
        return model(inputs)

    def ask(inputs):
        future = Future()
        requests.put((inputs, future))
        return future.result()

    def client():
        with torch.inference_mode():
            for _ in range(ENDLESS):
                ask(inputs) if cured else answer(inputs)

    for _ in range(8):
        threading.Thread(target=client, daemon=True).start()
    with torch.inference_mode():
        while cured:
            batch = [requests.get()]
            while len(batch) < 8 and not requests.empty():
                batch.append(requests.get())
            outputs = model(torch.cat([inputs for inputs, _ in batch]))
            for (_, future), output in zip(batch, outputs.split(1), strict=True):
                future.set_result(output)
    threading.Event().wait()


def kernels(cured):
    """Threads that call one model whose operators are large: the interpreter's lock is free most of the time."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3))).eval()
    inputs = torch.randn(256, 512)

    def client():
        with torch.inference_mode():
            for _ in range(ENDLESS):
                model(inputs)

    for _ in range(3):
        threading.Thread(target=client, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]("cured" in sys.argv[2:])
