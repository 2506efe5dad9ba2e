"""Fixes for loaders, in the words of the framework that builds them."""

from __future__ import annotations

from perfdoctor.api.findings import Fix
from perfdoctor.api.quantities import Job

from .wording import in_words_of


def workers(job: Job, count: int, otherwise: str, *, one_thread: bool = False) -> Fix:
    """More workers; `otherwise`: the other way, as a clause; `one_thread`: and training on one thread, since only both
    together help."""
    code = in_words_of(
        job,
        f"DataLoader(dataset, ..., num_workers={count}, persistent_workers=True)",
        transformers=f"TrainingArguments(..., dataloader_num_workers={count}, dataloader_persistent_workers=True)",
    )
    fitting = ", and train on one thread: workers and a team of threads would take each other's CPUs" * one_thread
    return Fix(
        text=f"Let worker processes make the batches while the model trains{fitting}. Or {otherwise}.",
        code="torch.set_num_threads(1)\n" * one_thread + code,
        risk="Each worker holds a copy of the data set object, and draws its own random numbers.",
        remedies=(f"etl.workers={count}" + "+threads=1" * one_thread,),
    )


def fewer_workers(job: Job) -> Fix:
    """None at all."""
    code = in_words_of(
        job,
        "DataLoader(dataset, ..., num_workers=0)",
        transformers="TrainingArguments(..., dataloader_num_workers=0)",
    )
    return Fix(
        text="Make the batches in the training process: making them takes less time than receiving them.",
        code=code,
        remedies=("etl.workers=0",),
    )


def prefetch(job: Job, factor: int) -> Fix:
    """Workers that prefetch more batches."""
    return Fix(
        text="Let the workers prefetch more batches, so that a slow one is ready by the time the loop needs it.",
        code=in_words_of(
            job,
            f"DataLoader(dataset, ..., prefetch_factor={factor})",
            transformers=f"TrainingArguments(..., dataloader_prefetch_factor={factor})",
        ),
        risk="Memory must hold that many batches per worker.",
        remedies=(f"etl.prefetch={factor}",),
    )


def persistent_workers(job: Job, made: int = 1) -> Fix:
    """Workers that outlive an epoch; `made`: how many loaders there were for all epochs."""
    return Fix(
        text="Keep the workers from one epoch to the next."
        if made == 1
        else "Make the loader once, before the first epoch, and keep its workers from one epoch to the next.",
        code=in_words_of(
            job,
            "DataLoader(dataset, ..., persistent_workers=True)",
            transformers="TrainingArguments(..., dataloader_persistent_workers=True)",
        ),
        risk="The workers' copy of the data set is not renewed between epochs.",
        remedies=("etl.persistent-workers",),
    )


def batched_indexing() -> Fix:
    """One index operation per batch instead of one per sample."""
    return Fix(
        text="Fetch whole batches: give the data set a `__getitems__` that indexes once, or let a BatchSampler hand "
        "index lists to a data set of tensors.",
        code="loader = DataLoader(\n    dataset,  # dataset[list_of_indices] returns a batch\n"
        "    sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=False),\n"
        "    batch_size=None,\n)",
        risk="`collate_fn` is no longer called; the data set must return finished batches.",
        remedies=("etl.replay",),
    )


def batch_size(job: Job, count: int, accumulate: int | None = None) -> str:
    """Code for batches of `count`, and for the number of micro-batches of a step where that is to be said."""
    plain = f"loader = DataLoader(dataset, ..., batch_size={count})"
    arguments = f"per_device_train_batch_size={count}"
    if accumulate is None:
        return in_words_of(job, plain, transformers=f"TrainingArguments(..., {arguments})")
    return in_words_of(
        job,
        f"{plain}  # and optimizer.step() after {'each' if accumulate == 1 else f'{accumulate} of them'}",
        lightning=f"{plain}\ntrainer = Trainer(..., accumulate_grad_batches={accumulate})",
        transformers=f"TrainingArguments(..., {arguments}, gradient_accumulation_steps={accumulate})",
        accelerate=f"{plain}\naccelerator = Accelerator(gradient_accumulation_steps={accumulate})",
    )
