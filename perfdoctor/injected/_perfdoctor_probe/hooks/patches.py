"""Every change the probe makes to the job's libraries, in one place, and the way back.

Each stand-in calls the original exactly once with the job's own arguments, outside any guard of ours, so that
results and errors are the job's; what we do around it is guarded.
"""

import functools
import gc
import multiprocessing.reduction
import time

import torch
import torch.utils.data._utils.fetch as fetch
import torch.utils.data._utils.worker as worker
import torch.utils.data.dataloader as dataloader
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .. import settings
from .. import timeline as parts
from . import shortcuts
from .discovery import Discovery

_clock = time.perf_counter_ns
_ABSENT = object()


class Changes:
    """What was put in the place of what, so that it can be put back."""

    def __init__(self) -> None:
        self.made: "list[tuple]" = []
        self.undone: "list[tuple]" = []

    def put(self, part: str, owner, name: str, stand_in) -> None:
        """Have `owner.name` be `stand_in`."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, stand_in)
        self.made.append((part, owner, name, vars(owner)[name], before))

    def when_undone(self, part: str, undo) -> None:
        """Call `undo` when the part is taken back."""
        self.undone.append((part, undo))

    def take_back(self, kept: "set[str]") -> None:
        """Everything is as before, but for the `kept` parts, and for what others have changed since."""
        for part, owner, name, ours, before in reversed(self.made):
            if part in kept or vars(owner).get(name) is not ours:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        for part, undo in self.undone:
            if part not in kept:
                undo()

    def take_back_only(self, part: str) -> None:
        """One part is as before."""
        self.take_back({other for other, *_ in (*self.made, *self.undone)} - {part})


def install(probe) -> None:
    """Put everything in place; called once per process, right after `import torch`.

    A part that this torch does not have is noted and left out; the others work without it.
    """
    note_autocast = probe.guarded("autocast", functools.partial(_note_autocast, probe))
    probe.discovery = Discovery(probe.loop, probe.guarded, note_autocast)
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
        _grad_scaler,
        _anomaly,
        _double,
        _knobs,
        _makers,
        _profilers,
        _compile,
        _watch,
    ):
        try:
            part(probe)
        except Exception as error:
            probe.fault(part.__name__[1:], error)


def _optimizer(probe) -> None:
    began, ended = shortcuts.optimizer_hooks(probe.loop, probe.guarded)
    handles = [register_optimizer_step_pre_hook(began), register_optimizer_step_post_hook(ended)]
    is_compiling = torch.compiler.is_dynamo_compiling

    def before(optimizer, args, kwargs) -> None:
        if not is_compiling():
            began(optimizer, args, kwargs)

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

    probe.changes.when_undone("optimizer", leave)


def _nothing(optimizer, args, kwargs) -> None:
    """Of the hooks that were here."""


def _backward(probe) -> None:
    # What `torch.autograd.backward` and `grad` have in common. Those two are known to TorchScript and Dynamo
    # by identity, so they stay as they are.
    original = torch.autograd._engine_run_backward
    run_backward = shortcuts.backward(probe.loop, probe.guarded, original)
    functools.update_wrapper(run_backward, original)
    probe.changes.put("backward", torch.autograd, "_engine_run_backward", run_backward)


def _loaders(probe) -> None:
    loading, loop = probe.loading, probe.loop
    made = probe.guarded("loader", loading.made)
    iterating = probe.guarded("iterator", loop.iterator_wanted)
    iterator_made = probe.guarded("iterator", loading.iterator_made)
    iterator_arrived = probe.guarded("iterator", loop.iterator_arrived)
    original_init = dataloader.DataLoader.__init__
    original_iter = dataloader.DataLoader.__iter__
    original_next = dataloader._BaseDataLoaderIter.__next__

    def init(self, *args, **kwargs):
        original_init(self, *args, **kwargs)
        made(self)

    def iterate(self):
        timed = iterating()
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
    for stand_in, original, name in (
        (init, original_init, "__init__"),
        (iterate, original_iter, "__iter__"),
        (following, original_next, "__next__"),
    ):
        functools.update_wrapper(stand_in, original)
        stand_in.__name__ = name
    put = probe.changes.put
    put("loaders", dataloader.DataLoader, "__init__", init)
    put("loaders", dataloader.DataLoader, "__iter__", iterate)
    put("batches", dataloader._BaseDataLoaderIter, "__next__", following)


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

    probe.changes.put("iterators", kind, "_shutdown_workers", shutdown)


def _workers(probe) -> None:
    loading = probe.loading
    began = probe.guarded("worker", loading.worker_began)
    original_loop = worker._worker_loop

    @functools.wraps(original_loop)
    def worker_loop(*args, **kwargs):
        # Positions of worker_id and num_workers in torch's own signature.
        began(*args[10:12])
        return original_loop(*args, **kwargs)

    probe.changes.put("workers", worker, "_worker_loop", worker_loop)

    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _fetch(probe, kind)


def _fetch(probe, kind) -> None:
    original = kind.fetch
    loading = probe.loading
    before = probe.guarded("fetch", loading.fetch_began)
    after = probe.guarded("fetch", loading.fetch_ended)

    @functools.wraps(original)
    def timed(self, index):
        if loading.untimed:
            loading.untimed -= 1
            return original(self, index)
        before(self)
        batch = original(self, index)
        after(self)
        return batch

    probe.changes.put("workers", kind, "fetch", timed)


def _transport(probe) -> None:
    pickler = multiprocessing.reduction.ForkingPickler
    original = pickler.loads
    received = probe.guarded("transport", probe.loading.received)

    def loads(data, *args, **kwargs):
        began = _clock()
        value = original(data, *args, **kwargs)
        received(len(data), _clock() - began)
        return value

    probe.changes.put("transport", pickler, "loads", staticmethod(loads))


def _pauses(probe) -> None:
    callback = probe.guarded("gc", probe.collector.callback)
    gc.callbacks.append(callback)
    probe.changes.when_undone("pauses", lambda: gc.callbacks.remove(callback))


def _collector(probe) -> None:
    probe.changes.put("collector", gc, "collect", probe.collector.explicit(gc.collect))


def _calls(probe) -> None:
    put, wrap = probe.changes.put, probe.calls.wrap
    save = wrap("save", torch.save, parts.CHECKPOINT)
    empty_cache = wrap("empty_cache", torch.cuda.empty_cache)
    # Each under both its names, because pickle looks a function up where it says it was defined.
    for owner in (torch, torch.serialization):
        put("calls", owner, "save", save)
    for owner in (torch.cuda, torch.cuda.memory):
        put("calls", owner, "empty_cache", empty_cache)


def _grad_scaler(probe) -> None:
    scaler = torch.amp.grad_scaler.GradScaler
    original = scaler.__init__

    def made(self) -> None:
        if self.is_enabled():
            probe.noted["scaler"] = probe.sites.place()

    made = probe.guarded("grad_scaler", made)

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        made(self)

    probe.changes.put("grad_scaler", scaler, "__init__", init)


def _followed(original, done):
    """`original`, and `done` after each call that returned."""

    @functools.wraps(original)
    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        done()
        return result

    return call


def _anomaly(probe) -> None:
    switched = probe.guarded("anomaly", probe.anomaly.switched)
    # Not what makes a `detect_anomaly`: that warns, and names the line that called it.
    for kind, name in ((torch.autograd.detect_anomaly, "__enter__"), (torch.autograd.set_detect_anomaly, "__init__")):
        probe.changes.put("anomaly", kind, name, _followed(getattr(kind, name), switched))


def _double(probe) -> None:
    def asked() -> None:
        if probe.noted.get("double") is None:
            probe.noted["double"] = probe.sites.place(2)

    def asked_in(words) -> None:
        # A type, or a tensor that has it.
        if any(word is torch.float64 or getattr(word, "dtype", None) is torch.float64 for word in words):
            asked()

    asked, asked_in = probe.guarded("double", asked), probe.guarded("double", asked_in)
    set_default = torch.set_default_dtype

    @functools.wraps(set_default)
    def set_default_dtype(d, /):
        set_default(d)
        if d is torch.float64:
            asked()

    probe.changes.put("double", torch, "set_default_dtype", set_default_dtype)
    probe.changes.put("double", torch.nn.Module, "double", _followed(torch.nn.Module.double, asked))
    convert = torch.nn.Module.to

    @functools.wraps(convert)
    def to(self, *args, **kwargs):
        module = convert(self, *args, **kwargs)
        asked_in((*args, *kwargs.values()))
        return module

    probe.changes.put("double", torch.nn.Module, "to", to)


def _knobs(probe) -> None:
    """Lines that set the number of threads, switch oneDNN off, or tell cuDNN how to work."""
    import torch.backends.mkldnn as mkldnn

    def threads_set() -> None:
        probe.noted["threads"] = probe.sites.place(2)

    def onednn_set() -> None:
        if not torch._C._get_mkldnn_enabled():
            probe.noted["onednn"] = probe.sites.place(2)

    def cudnn_set(name: str) -> None:
        probe.noted[f"cudnn.{name}"] = probe.sites.place(2)

    places = [(torch, "set_num_threads", threads_set), (mkldnn, "set_flags", onednn_set)]
    settings = [(mkldnn, "enabled", onednn_set)]
    for name in ("enabled", "benchmark", "deterministic"):
        settings.append((torch.backends.cudnn, name, functools.partial(cudnn_set, name)))
    for module, name, done in settings:
        setting = vars(type(module)).get(name)  # what assigning to `torch.backends.mkldnn.enabled` goes through
        if setting is not None:
            places.append((setting, "setter", done))
    for owner, name, done in places:
        probe.changes.put("knobs", owner, name, _followed(getattr(owner, name), probe.guarded("knobs", done)))


def _makers(probe) -> None:
    """Lines that make modules and optimizers."""
    note = probe.guarded("makers", probe.sites.note_made)
    for kind in (torch.nn.Module, torch.optim.Optimizer):
        probe.changes.put("makers", kind, "__init__", _begun(kind.__init__, note))


def _begun(original, note):
    """An `__init__`, and before it `note` of the object."""

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        note(self)
        original(self, *args, **kwargs)

    return __init__


def _profilers(probe) -> None:
    import torch.autograd.profiler as module

    starts = probe.guarded("profilers", probe.profilers.starts)

    def announced(original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            starts()
            return original(*args, **kwargs)

        return call

    for name in ("_prepare_profiler", "_enable_profiler"):
        probe.changes.put("profilers", module, name, announced(getattr(module, name)))


def _compile(probe) -> None:
    compiling = probe.guarded("compile", probe.compiling)
    module_compiled = probe.guarded("compile", probe.discovery.module_compiled)
    original = torch.compile
    original_method = torch.nn.Module.compile

    @functools.wraps(original)
    def compile(*args, **kwargs):
        compiling()
        return original(*args, **kwargs)

    @functools.wraps(original_method)
    def compile_method(self, *args, **kwargs):
        result = original_method(self, *args, **kwargs)
        module_compiled(self)
        return result

    probe.changes.put("compile", torch, "compile", compile)
    probe.changes.put("compile", torch.nn.Module, "compile", compile_method)


def _watch(probe) -> None:
    probe.discovery.watch()
    probe.changes.when_undone("watch", probe.discovery.retire)


def _note_autocast(probe) -> None:
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            probe.autocast = str(torch.get_autocast_dtype(device))[6:]
    # At the same moment, inside whatever `with` the loop put around the forward.
    probe.onednn = settings.onednn_enabled() and probe.onednn is not False
    probe.cudnn = settings.cudnn_enabled() and probe.cudnn is not False
