"""Where a batch is made slowly, and how to make it cheaper."""

from __future__ import annotations

from perfdoctor.api.findings import Measurement, share
from perfdoctor.api.quantities import Cause, CodeLine, Fetch

from .waiting import Case

_IN = {Cause.STORAGE: "waiting for storage", Cause.TRANSFORM: "in `__getitem__`", Cause.COLLATE: "in `collate_fn`"}
_TELLING = 0.25
"""A line that takes a quarter of making a batch is worth a look; below, the time is all over the place."""
_CHEAP_SAMPLE_MS = 0.1
"""Up to this time per sample, `__getitem__` is Python overhead rather than work."""
_TORCH_COLLATE = ("", "default_collate", "default_convert")
CHEAPER = {
    Cause.STORAGE: (
        "read less often or from faster storage (pack many samples into one file with WebDataset, Arrow or memory-"
        "mapped arrays, keep the data set in memory, or copy it to a local disk before training)",
        "np.save('samples.npy', samples)\nsamples = np.load('samples.npy', mmap_mode='r')  # read by page",
    ),
    Cause.TRANSFORM: (
        "cache the transform's result, save the transformed data set before training, or transform whole batches "
        "instead of single samples",
        "dataset = [transform(sample) for sample in dataset]  # once, before the first epoch",
    ),
    Cause.COLLATE: (
        "stack arrays once in `collate_fn` with `torch.from_numpy(np.stack(...))` instead of converting element by "
        "element",
        "def collate(samples):\n    return torch.from_numpy(np.stack(samples))",
    ),
}
"""A clause and the code, by what takes longest."""


def doing(case: Case) -> str:
    """What most of the making of a batch is."""
    if case.split.blamed is Cause.TRANSFORM and case.loader.iterable:
        return "in `__iter__`"
    return _IN[case.split.blamed]


def hottest(fetch: Fetch) -> CodeLine | None:
    """The line of the data set or `collate_fn` to look at first."""
    line = fetch.lines[0] if fetch.lines else None
    return line if line is not None and line.share >= _TELLING else None


def told(fetch: Fetch) -> tuple[str, tuple[Measurement, ...]]:
    """Where a batch is made slowly: a clause, and its measurements."""
    line = hottest(fetch)
    if line is None:
        return "", ()
    return (
        "; {hottest_share} of the making is spent at {hottest}",
        (
            Measurement("hottest", str(line.site), "text", "hottest line of making a batch"),
            share("hottest_share", line.share, "of the making, on that line"),
        ),
    )


def picks_samples_singly(case: Case, fetch: Fetch) -> bool:
    """Whether a batch is many cheap samples, so that Python's part of each is most of it."""
    samples = case.loader.batch_size or 0
    if case.loader.iterable:  # there is nothing to index
        return False
    # A function of the job's own that takes most of the time does something: look there.
    if case.split.blamed is Cause.COLLATE and case.loader.collate not in _TORCH_COLLATE:
        return False
    cheap = samples > 1 and fetch.getitem_ms / samples < _CHEAP_SAMPLE_MS
    return case.loader.num_workers == 0 and cheap and case.split.blamed is not Cause.STORAGE
