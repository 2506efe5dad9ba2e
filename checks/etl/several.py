"""The loaders of a step one by one, and what a message calls each of them."""

from __future__ import annotations

from collections.abc import Sequence

from perfdoctor.api.quantities import Evidence, InputWait, Loader, Missing, Step

from .waiting import Case, Limits


def cases(
    evidence: Evidence, step: Step, loaders: Sequence[Loader], waits: Sequence[InputWait], limits: Limits
) -> tuple[Case, ...]:
    """One for each loader, in the order in which they are waited for."""
    called = names(loaders)
    return tuple(
        Case(evidence, loader, step, split, limits, number=number, name=called[number])
        for number, (loader, split) in enumerate(zip(loaders, waits, strict=True))
    )


def names(loaders: Sequence[Loader]) -> tuple[str, ...]:
    """By data set and line, and where that tells two of them not apart by more; "" where there is but one loader."""
    if len(loaders) < 2:
        return ("",) * len(loaders)
    found = [_data_set(loader) for loader in loaders]
    for more in (_size, _number):
        found = [
            f"{name}, {more(loader)}" if found.count(name) > 1 else name
            for name, loader in zip(found, loaders, strict=True)
        ]
    return tuple(found)


def _data_set(loader: Loader) -> str:
    place = "" if isinstance(loader.site, Missing) else f" at {loader.site.file}:{loader.site.line}"
    return f"`{loader.dataset}`{place}"


def _size(loader: Loader) -> str:
    batches = f"batches of {loader.batch_size}" if loader.batch_size else "no batch size"
    return batches if loader.length is None else f"{loader.length} samples, {batches}"


def _number(loader: Loader) -> str:
    return f"number {loader.id + 1}"
