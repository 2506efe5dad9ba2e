"""Ways to share a model among requests that do not fight over the interpreter."""

from __future__ import annotations

from perfdoctor.api.findings import Fix
from perfdoctor.api.quantities import Job

_SERVER = """\
def serve(requests):  # in one thread of its own; requests is a queue.Queue
    with torch.inference_mode():
        while True:
            batch = [requests.get()]
            while len(batch) < 32 and not requests.empty():
                batch.append(requests.get())
            outputs = model(torch.cat([inputs for inputs, _ in batch]))
            for (_, future), output in zip(batch, outputs.split(1)):
                future.set_result(output)

def answer(inputs):  # in the threads that called the model
    future = concurrent.futures.Future()
    requests.put((inputs, future))
    return future.result()
"""
_RAY = """\
@serve.deployment
class Model:
    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.005)
    async def answer(self, inputs):
        return self.model(torch.cat(inputs)).split(1)
"""
_POOL = """\
def load():  # once in each process
    global model
    torch.set_num_threads(1)
    model = make_model().eval()

pool = concurrent.futures.ProcessPoolExecutor(
    {count}, mp_context=multiprocessing.get_context("spawn"), initializer=load)
"""


def batch(job: Job) -> Fix:
    """One thread that owns the model."""
    return Fix(
        text="Let one thread own the model and answer all waiting requests as one batch.",
        code=_RAY if "ray" in job.frameworks else _SERVER,
        risk="Requests of different shapes must be padded or grouped; results may differ in the last digits, and a "
        "request waits for the batch before it.",
    )


def processes(count: int) -> Fix:
    """A model for each process."""
    return Fix(
        text=f"Give each of {count} processes a model, an interpreter and its share of the CPUs.",
        code=_POOL.replace("{count}", str(count)),
        risk="Each process holds its own copy of the model, and inputs and outputs are sent between processes.",
    )


def fewer_threads(count: int) -> Fix:
    """Teams that fit on the CPUs together."""
    return Fix(
        text="Divide the CPUs among the threads that compute at the same time.",
        code=f"torch.set_num_threads({count})  # before the threads start; or OMP_NUM_THREADS={count}",
        risk="A request that comes alone takes longer; sums may differ in the last digits.",
    )
