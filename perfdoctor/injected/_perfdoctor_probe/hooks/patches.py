"""Every change the probe makes to the job's libraries, in one place, and the way back.

Each stand-in calls the original exactly once with the job's own arguments, outside any guard of ours, so that
results and errors are the job's; what we do around it is guarded.
"""

import functools
import gc
import multiprocessing.reduction
import os
import sys
import time

import torch
import torch.utils.data._utils.fetch as fetch
import torch.utils.data._utils.worker as worker
import torch.utils.data.dataloader as dataloader
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import settings
from .. import timeline as parts
from ..changes import Changes
from . import checkpoints, shortcuts
from .around import SELF, announced, followed
from .discovery import Discovery
from .knobs import double, grad_scaler, knobs, onednn_flags

_clock = time.perf_counter_ns


def install(probe) -> None:
    """Put everything in place; called once per process, right after `import torch`.

    A part that this torch does not have is noted and left out; the others work without it.
    """
    note_autocast = probe.guarded("autocast", functools.partial(_note_autocast, probe))
    probe.discovery = Discovery(probe.loop, probe.guarded, note_autocast, probe.evaluation.forward_ended, probe.trained)
    probe.changes = Changes()
    for part in (
        _optimizer,
        _backward,
        _loaders,
        _iterator_ends,
        _workers,
        _transport,
        _pauses,
        _collector,
        _calls,
        _communication,
        _loggers,
        _schedules,
        _averages,
        _processes,
        grad_scaler,
        _anomaly,
        double,
        knobs,
        _makers,
        _profilers,
        _compile,
        _watch,
    ):
        try:
            part(probe)
        except Exception as error:
            probe.fault(part.__name__.removeprefix("_"), error)


def _optimizer(probe) -> None:
    began, ended = shortcuts.optimizer_hooks(probe.loop, probe.guarded)
    handles = [register_optimizer_step_pre_hook(began), register_optimizer_step_post_hook(ended)]
    is_compiling = torch.compiler.is_dynamo_compiling

    def before(optimizer, args, kwargs) -> "tuple | None":
        return None if is_compiling() else began(optimizer, args, kwargs)

    def after(optimizer, args, kwargs) -> None:
        if not is_compiling():
            ended(optimizer, args, kwargs)

    # In a compiled `step` these two are traced, as nothing; under our own file name Dynamo would stop at them,
    # because it skips our files (`Discovery.compiling`).
    for hook in (before, after):
        hook.__code__ = hook.__code__.replace(co_filename="<perfdoctor>")

    def traceable() -> None:
        if handles:
            handles.pop().remove()
            handles.pop().remove()
            register_optimizer_step_pre_hook(before)
            register_optimizer_step_post_hook(after)

    probe.make_hooks_traceable = traceable

    def leave() -> None:
        # Called from inside these very hooks: the two dictionaries must keep their size meanwhile.
        for handle in handles:
            handle.hooks_dict_ref()[handle.id] = _nothing

    probe.changes.when_undone(leave, "optimizer")


def _nothing(optimizer, args, kwargs) -> None:
    """Of the hooks that were here."""


def _backward(probe) -> None:
    # What `torch.autograd.backward` and `grad` have in common. Those two are known to TorchScript and Dynamo
    # by identity, so they stay as they are.
    original = torch.autograd._engine_run_backward
    run_backward = shortcuts.backward(probe.loop, probe.guarded, original)
    functools.update_wrapper(run_backward, original)
    probe.changes.put(torch.autograd, "_engine_run_backward", run_backward, "backward")


def _loaders(probe) -> None:
    loading, loop = probe.loading, probe.loop
    made = probe.guarded("loader", loading.made)
    iterating = probe.guarded("iterator", loop.iterator_wanted)
    iterator_wanted = probe.guarded("evaluation", probe.evaluation.iterator_wanted)
    iterator_made = probe.guarded("iterator", loading.iterator_made)
    iterator_arrived = probe.guarded("iterator", loop.iterator_arrived)
    original_iter = dataloader.DataLoader.__iter__
    original_next = dataloader._BaseDataLoaderIter.__next__

    def iterate(self):
        timed = iterating()
        if timed:
            iterator_wanted()
        began = _clock()
        try:
            iterator = original_iter(self)
        finally:
            if timed:
                iterator_arrived()
        iterator_made(self, iterator, _clock() - began)
        return iterator

    following = shortcuts.following(
        loop, loading, probe.guarded, original_next, dataloader._MultiProcessingDataLoaderIter
    )
    for stand_in, original in ((iterate, original_iter), (following, original_next)):
        functools.update_wrapper(stand_in, original)
    put = probe.changes.put
    put(dataloader.DataLoader, "__init__", followed(dataloader.DataLoader.__init__, made, SELF), "loaders")
    put(dataloader.DataLoader, "__iter__", iterate, "loaders")
    put(dataloader._BaseDataLoaderIter, "__next__", following, "batches")


def _iterator_ends(probe) -> None:
    """Ending workers takes as long as starting them, and the loop waits for it wherever the iterator is let go."""
    wanted = probe.guarded("iterator", probe.loop.iterator_wanted)
    arrived = probe.guarded("iterator", probe.loop.iterator_arrived)
    ended = probe.guarded("iterator", probe.loading.iterator_ended)
    kind, utilities, clock = dataloader._MultiProcessingDataLoaderIter, dataloader._utils, _clock
    original = kind._shutdown_workers

    @functools.wraps(original)
    def shutdown(self):
        # Called again when the iterator is freed, and at the end of the process, when it does nothing.
        if getattr(self, "_shutdown", True) or utilities.python_exit_status or not wanted():
            return original(self)
        began = clock()
        try:
            return original(self)
        finally:
            arrived()
            ended(self, clock() - began)

    probe.changes.put(kind, "_shutdown_workers", shutdown, "iterators")


def _workers(probe) -> None:
    began = probe.guarded("worker", probe.fetches.worker_began)
    # Positions of worker_id and num_workers in torch's own signature.
    worker_loop = announced(worker._worker_loop, began, slice(10, 12))
    probe.changes.put(worker, "_worker_loop", worker_loop, "workers")
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _fetch(probe, kind)


def _fetch(probe, kind) -> None:
    original = kind.fetch
    fetches = probe.fetches
    before = probe.guarded("fetch", fetches.began)
    after = probe.guarded("fetch", fetches.ended)

    @functools.wraps(original)
    def timed(self, index):
        if fetches.untimed:
            fetches.untimed -= 1
            return original(self, index)
        before(self)
        batch = original(self, index)
        after(self)
        return batch

    probe.changes.put(kind, "fetch", timed, "workers")


def _transport(probe) -> None:
    pickler = multiprocessing.reduction.ForkingPickler
    original = pickler.loads
    received = probe.guarded("transport", probe.loading.received)

    def loads(data, *args, **kwargs):
        began = _clock()
        value = original(data, *args, **kwargs)
        received(len(data), _clock() - began)
        return value

    probe.changes.put(pickler, "loads", staticmethod(loads), "transport")


def _pauses(probe) -> None:
    callback = probe.guarded("gc", probe.collector.callback)
    gc.callbacks.append(callback)
    probe.changes.when_undone(lambda: gc.callbacks.remove(callback), "pauses")


def _collector(probe) -> None:
    probe.changes.put(gc, "collect", probe.collector.explicit(gc.collect), "collector")


def _calls(probe) -> None:
    put, wrap = probe.changes.put, probe.calls.wrap
    saving = announced(torch.save, probe.guarded("save", probe.calls.file_saved))
    save = wrap("save", saving, parts.CHECKPOINT)
    # What is written to disk at once; libraries call it inside their saves too.
    fsync = wrap("fsync", os.fsync, parts.CHECKPOINT, probe.calls.began_inside)
    for owner in (os, sys.modules[os.fsync.__module__]):
        put(owner, "fsync", fsync, "calls")
    # What lies on a device, while it is saved.
    storage = torch.UntypedStorage
    put(storage, "cpu", wrap("save.copy", storage.cpu, parts.CHECKPOINT, probe.calls.began_within), "calls")
    empty_cache = wrap("empty_cache", torch.cuda.empty_cache)
    # Each under both its names, because pickle looks a function up where it says it was defined.
    for owner in (torch, torch.serialization):
        put(owner, "save", save, "calls")
    for owner in (torch.cuda, torch.cuda.memory):
        put(owner, "empty_cache", empty_cache, "calls")
    probe.watch_checkpoints = probe.guarded(
        "calls", functools.partial(checkpoints.watch_later, probe.changes, probe.calls)
    )


def _communication(probe) -> None:
    """Where a rank waits for others. Taken back before anything is compiled: Dynamo knows collectives by identity."""
    import torch.distributed as distributed

    if not distributed.is_available():
        return
    model = torch.nn.parallel.DistributedDataParallel
    communication, places = probe.communication, Changes()
    places.put(model, "_sync_buffers", probe.calls.wrap("dist.buffers", model._sync_buffers, parts.COMMUNICATION))
    places.put(model, "_post_forward", communication.post_forward(model._post_forward))
    places.put(distributed.Work, "wait", communication.wait(distributed.Work.wait))
    communication.places = places

    def leave() -> None:
        communication.places = None
        places.take_back()

    communication.leave = leave
    probe.changes.when_undone(leave, "communication")


def _loggers(probe) -> None:
    probe.changes.when_undone(probe.loggers.forget, "logging")


def _schedules(probe) -> None:
    """Not those that step others, which would be counted twice."""
    module = torch.optim.lr_scheduler
    for kind in (module.LRScheduler, module.ReduceLROnPlateau, module.CosineAnnealingWarmRestarts):
        probe.changes.put(
            kind, "step", probe.calls.wrap("schedule", kind.step, began=probe.calls.began_in_loop), "schedules"
        )


def _averages(probe) -> None:
    module = torch.optim.swa_utils
    update = probe.calls.wrap("update_bn", module.update_bn, began=probe.calls.began_in_loop)
    probe.changes.put(module, "update_bn", update, "averages")


def _processes(probe) -> None:
    probe.watch_processes = probe.guarded("processes", functools.partial(probe.processes.watch, probe.changes))
    probe.watch_processes()


def _anomaly(probe) -> None:
    switched = probe.guarded("anomaly", probe.anomaly.switched)
    # Not what makes a `detect_anomaly`: that warns, and names the line that called it.
    for kind, name in ((torch.autograd.detect_anomaly, "__enter__"), (torch.autograd.set_detect_anomaly, "__init__")):
        probe.changes.put(kind, name, followed(getattr(kind, name), switched), "anomaly")


def _makers(probe) -> None:
    """Lines that make modules and optimizers, tensors of NumPy's numbers, and places where oneDNN is off."""
    note = probe.guarded("makers", probe.sites.note_made)
    makers = Changes()
    for kind in (torch.nn.Module, torch.optim.Optimizer):
        makers.put(kind, "__init__", followed(kind.__init__, note, SELF))
    makers.put(torch, "from_numpy", probe.doubles.following(torch.from_numpy, probe.guarded))
    makers.put(torch.backends.mkldnn, "flags", onednn_flags(probe))
    probe.changes.when_undone(makers.take_back, "makers")
    # A module may be made in code that is compiled: nothing of ours may be traced.
    probe.forget_makers = makers.take_back


def _profilers(probe) -> None:
    import torch.autograd.profiler as module

    starts = probe.guarded("profilers", probe.profilers.starts)
    for name in ("_prepare_profiler", "_enable_profiler"):
        probe.changes.put(module, name, announced(getattr(module, name), starts), "profilers")
    job = probe.jobs_profiler
    scheduled, started, stopped = (
        probe.guarded("profilers", done) for done in (job.scheduled, job.started, job.stopped)
    )
    kind, scheduled_kind = module.profile, torch.profiler.profile
    scheduling = scheduled_kind.__base__
    for owner, name, stand_in in (
        (scheduling, "start_trace", announced(scheduling.start_trace, scheduled, SELF)),
        (kind, "_start_trace", followed(kind._start_trace, started, SELF)),
        (module.emit_nvtx, "__enter__", followed(module.emit_nvtx.__enter__, started, SELF)),
        (module.emit_itt, "__enter__", followed(module.emit_itt.__enter__, started, SELF)),
        (module, "_disable_profiler", announced(module._disable_profiler, stopped)),
        # Where a cycle of its schedule ends, what it recorded is sorted and written in there.
        (scheduled_kind, "step", probe.calls.wrap("profiler.step", scheduled_kind.step)),
    ):
        probe.changes.put(owner, name, stand_in, "profilers")


def _compile(probe) -> None:
    module = torch.nn.Module
    compiled = followed(module.compile, probe.guarded("compile", probe.discovery.module_compiled), SELF)
    probe.changes.put(torch, "compile", announced(torch.compile, probe.guarded("compile", probe.compiling)), "compile")
    probe.changes.put(module, "compile", compiled, "compile")


def _watch(probe) -> None:
    probe.discovery.watch()
    probe.changes.when_undone(probe.discovery.retire, "watch")


def _note_autocast(probe) -> None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            probe.facts.autocast = str(torch.get_autocast_dtype(device))[6:]
    # At the same moment, inside whatever `with` the loop put around the forward.
    probe.facts.onednn = settings.onednn_enabled() and probe.facts.onednn is not False
    probe.facts.cudnn = settings.cudnn_enabled() and probe.facts.cudnn is not False
