"""Whether a data set gives the same samples every time: two of them, each asked for twice once the job's last step is
made. Only where nobody uses what the job changes now: the data set's own code runs for it, and may count or print.
"""

import contextlib
import io
import time
import warnings

from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

from ..hooks.held_out import tensors
from ..rows import rounded
from ..windows import draws
from ..windows.content import Content, NotComparableError
from .fixed_part import fixed_part, made_at

_LONG_NS = 300_000_000
"""Of one sample: with a longer one the first is the last."""
_LIMIT_NS = 1_000_000_000
"""For all data sets together."""
_TRACED = 4
"""Times as long as asking for the samples, for going through their making line by line."""
_LINE_BYTES = 64
"""Of memory, that are read at once."""
_DEEPEST = 4
"""Steps from a data set to a generator of random numbers: its transform's, in a list of several."""


class _NotAskedError(Exception):
    """Says why."""


def asked_again(loading) -> "list[dict]":
    """A record of each data set that a loader in use draws from."""
    records, until_ns = [], time.perf_counter_ns() + _LIMIT_NS
    for loader, made_with in loading.in_use().items():
        if isinstance(made_with.dataset, IterableDataset):
            continue
        try:
            with _quietly():
                found = _asked(made_with, loading.sites, until_ns)
        except _NotAskedError as error:
            found = {"same": {"missing": str(error)}}
        except NotComparableError:
            found = {"same": {"missing": "its samples hold objects that cannot be compared"}}
        except Exception as error:  # a data set that works in a worker only, or for other indices
            found = {"same": {"missing": f"a sample could not be asked for: {type(error).__name__}"}}
        records.append({"loader": loader, **found})
    return records


def _asked(made_with, sites, until_ns: int) -> dict:
    dataset = made_with.dataset
    if made_with.batch_sampler is None:
        raise _NotAskedError("whole batches are asked for, and not single samples")
    if hasattr(type(dataset), "set_epoch"):
        raise _NotAskedError("it is told which epoch it is, and may give other samples in the next")
    length = len(dataset)
    if length < 2:
        raise _NotAskedError("it has one sample")
    generators = draws.kept_by(dataset, _DEEPEST)
    before = _states(generators)
    # One after the other: what is kept of the last sample alone is gone when that is asked for again.
    indices = length // 4, 3 * length // 4
    first, again = ([_sample(dataset, index, until_ns) for index in indices] for _ in range(2))
    numbers = [number for number, *_ in first]
    # A mirrored image is the same both times in half of all cases: that a coin was tossed shows in the generator.
    same = numbers == [number for number, *_ in again] and before == _states(generators)
    # A loader that is given a batch sampler (Accelerate's, which takes a rank's part) has a sampler that nobody asks.
    batches = made_with.batch_sampler
    whole = type(batches) is BatchSampler and type(batches.sampler) in (RandomSampler, SequentialSampler)
    took_ns = sum(sample[2] for sample in again)
    has_time = time.perf_counter_ns() + _TRACED * took_ns < until_ns
    fixed = None if same or not has_time else _fixed(dataset, indices, sites, generators)
    at = made_at(dataset, indices[0], sites) if same and has_time else -1
    return {
        "same": same,
        "at": at,
        **({"fixed": fixed} if fixed else {}),
        "bytes": max(size for _, size, *_ in first),
        "held": "-".join(number.hex() for number in numbers) if same and whole else "",
        "scattered": any(scattered for *_, scattered in first),
        "kept": rounded(min(max(0.0, 1 - later[2] / once[2]) for once, later in zip(first, again))),
    }


def _fixed(dataset, indices: tuple, sites, generators: list) -> "dict | None":
    """What is the same each time of samples that differ; None where that is nothing in one of them."""
    found = [fixed_part(dataset, index, sites, lambda: _states(generators)) for index in indices]
    if None in found:
        return None
    return {**found[0], "share": min(one["share"] for one in found), "bytes": max(one["bytes"] for one in found)}


def _sample(dataset, index: int, until_ns: int) -> "tuple[bytes, int, int, bool]":
    """What it holds, as a number; its bytes; nanoseconds; and whether most of it lies scattered in memory."""
    began = time.perf_counter_ns()
    if began > until_ns:
        raise _NotAskedError("there was no time to ask for samples again")
    sample = dataset[index]
    took_ns = time.perf_counter_ns() - began
    if took_ns > _LONG_NS:
        raise _NotAskedError("a sample takes too long to be asked for again")
    content = Content(everywhere=True)
    content.add(sample)
    scattered = sum(one.numel() * one.element_size() for one in tensors(sample) if _is_scattered(one))
    return content.number, content.bytes, max(1, took_ns), 2 * scattered > content.bytes


def _is_scattered(tensor) -> bool:
    """Whether each of its numbers lies in a line of memory of its own."""
    steps = [step for size, step in zip(tensor.shape, tensor.stride()) if size > 1]
    return bool(steps) and min(steps) * tensor.element_size() >= _LINE_BYTES


def _states(generators: list) -> tuple:
    return draws.state(), draws.of_python(), draws.state_of(generators)


@contextlib.contextmanager
def _quietly():
    """Nothing that the data set says reaches anybody."""
    nowhere = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        warnings.simplefilter("ignore")
        yield
