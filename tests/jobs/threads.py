"""Jobs that call models from several threads: `python threads.py STYLE ...`, each in a forked child."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from loops import Net, data, main, setup
from torch import nn

CALLS = 400
THREADS = 3


def small():
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.Tanh())]).eval()


def call(model, x, calls=CALLS, graded=False):
    with torch.set_grad_enabled(graded):
        for _ in range(calls):
            model(x)


def together(*tasks):
    # None begins before all are there, so that they overlap.
    gate = threading.Barrier(len(tasks))

    def run(task):
        gate.wait()
        task()

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Rendezvous(nn.Module):
    """Threads meet inside the forward: whatever the scheduler does, all of them overlap."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.0)
        self.gate = threading.Barrier(THREADS)

    def forward(self, x):
        self.gate.wait()
        return self.dropout(self.layer(x))


def shared():
    model, x = Rendezvous().eval(), torch.randn(2, 8)
    together(*[lambda: call(model, x)] * THREADS)
    return model.layer


def training_mode():
    model, x = Rendezvous(), torch.randn(2, 8)
    together(*[lambda: call(model, x)] * THREADS)
    return model.layer


def graded():
    model, x = Rendezvous().eval(), torch.randn(2, 8)
    with torch.no_grad():  # does not reach the threads
        together(*[lambda: call(model, x, graded=True)] * THREADS)
    return model.layer


def locked():
    model, x, lock = small(), torch.randn(2, 8), threading.Lock()

    def answer():
        with torch.no_grad():
            for _ in range(CALLS):
                with lock:
                    model(x)

    together(*[answer] * THREADS)
    return model


def fresh_threads():
    """A thread for each request."""
    model, x = small(), torch.randn(2, 8)
    call(model, x, calls=12)
    for _ in range(60):
        together(*[lambda: call(model, x, calls=1)] * THREADS)
    return model


def warmed_up():
    """The main thread calls the model first, and never again."""
    model, x = small(), torch.randn(2, 8)
    call(model, x, calls=12)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: call(model, x, calls=1), range(CALLS)))
    return model


def fed_by_a_loader():
    """The main thread reads batches and hands them to a pool."""
    model = small()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(16):
            list(pool.map(lambda batch: call(model, batch[0], calls=1), data()))
    return model


def one_after_another():
    model, x = small(), torch.randn(2, 8)
    for _ in range(THREADS):
        together(lambda: call(model, x, calls=60))
    return model


def beside_training():
    """A thread that infers with a model of its own while the main thread trains."""
    model, optimizer, criterion = setup()
    other, x, done = Net().eval(), torch.randn(4, 8), threading.Event()

    def infer():
        while not done.is_set():
            call(other, x, calls=1)

    thread = threading.Thread(target=infer)
    thread.start()
    for _ in range(3):
        for inputs, labels in data():
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
    done.set()
    thread.join()
    return model


def behind_a_lock():
    """Two threads infer with the model that the main thread trains, one at a time, for four seconds: long enough for
    the window of locks, which takes 0.6 s."""
    model, optimizer, criterion = setup()
    x, done, lock = torch.randn(4, 8), threading.Event(), threading.Lock()
    ends = time.monotonic() + 4

    def infer():
        while not done.is_set():
            with lock:
                call(model, x, calls=20)
            time.sleep(0.001)  # whoever lets go of a lock and takes it again has it before those that wait

    threads = [threading.Thread(target=infer) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < ends:
        for inputs, labels in data():
            with lock:
                optimizer.zero_grad()
                criterion(model(inputs), labels).backward()
                optimizer.step()
    done.set()
    for thread in threads:
        thread.join()
    return model


def raising():
    """Some forwards raise, on every thread."""
    model, x, wrong = small(), torch.randn(2, 8), torch.randn(2, 9)

    def answer():
        for i in range(CALLS):
            try:
                call(model, wrong if i % 3 == 0 else x, calls=1)
            except RuntimeError:
                pass

    together(*[answer] * THREADS)
    return model


def endless():
    """Four seconds of a small model: long enough for timings, which are taken a while after the forward they are of."""
    model, x, ends = small(), torch.randn(2, 8), time.monotonic() + 4

    def answer():
        while time.monotonic() < ends:
            call(model, x, calls=1)

    together(*[answer] * THREADS)
    return model


if __name__ == "__main__":
    main(globals())
