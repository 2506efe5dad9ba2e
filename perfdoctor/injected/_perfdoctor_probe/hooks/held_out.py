"""Forward passes on data that is held out: without gradients, of a model that trains, on a tensor that it was given in
two earlier steps and that nobody has changed since.

What an agent acts on, what a teacher or a target network is given, and what pseudo-labels are made for is another
tensor in each step, or another model. A tensor is known by its storage and version. What numpy or another process
writes into it leaves the version as it was, so on the CPU some of its bytes are compared too.
"""

import ctypes
import zlib
from collections import OrderedDict

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.multiprocessing.reductions import StorageWeakRef

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Of another class, what a tensor stands for is not known."""
_MOST = 512
"""Tensors that are known at once, the latest: parts of a held-out set, or all that an agent saw lately."""
_EARLIER = 2
"""Steps that it was given in before. An agent asks for the value of its last state and acts on the same in the next
step: that is one."""
_LINES = 4
"""Lines that are told."""
_BYTES = 1024
"""Compared at the beginning, in the middle and at the end: about a microsecond each."""


class _Given:
    """A tensor that a model was given."""

    __slots__ = ("earlier", "learns", "reference", "step")

    def __init__(self, reference, step: int) -> None:
        self.reference = reference
        """Weak; while it is there, no other storage has its address."""
        self.step = step
        """The latest."""
        self.earlier = 0
        """Steps before that one."""
        self.learns = False
        """The model that it was given to is updated by an optimizer."""


class HeldOut:
    """Knows such forward passes. All methods are called on the training thread."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.reset()

    def reset(self) -> None:
        """Forget everything: at install, and in a forked child."""
        self.given: "OrderedDict[tuple, _Given]" = OrderedDict()
        self.learning: "set[int]" = set()
        """What optimizers update, by identity."""
        self.lines: "set[int]" = set()

    def optimizer_stepped(self, optimizer) -> None:
        """One of the first steps of an optimizer."""
        self.learning.update(id(one) for group in optimizer.param_groups for one in group["params"])

    def met(self, module, arguments: tuple, step: int) -> bool:
        """Whether this pass of `module`, which has just ended, is one. `arguments`: positional ones, and by name."""
        if torch.is_grad_enabled() or torch._C._get_tracing_state():
            return False
        with torch._C.DisableTorchFunction():
            tensor = next(tensors(arguments), None)
            known = None if tensor is None else self._known(tensor, step)
        if known is None:
            return False
        known.earlier += known.step != step
        known.step = step
        if known.earlier < _EARLIER:
            return False
        if not known.learns:
            trained = next((one for one in module.parameters() if one.requires_grad), None)
            known.learns = id(trained) in self.learning
            if known.learns:
                self._tell()
        return known.learns

    def _known(self, tensor, step: int) -> _Given:
        storage = tensor.untyped_storage()
        place = storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype
        key = (*place, *mark(tensor, storage))
        known = self.given.get(key)
        if known is not None:
            self.given.move_to_end(key)
            return known
        known = self.given[key] = _Given(StorageWeakRef(storage), step)
        if len(self.given) > _MOST:
            self.given.popitem(last=False)
        return known

    def _tell(self) -> None:
        """The line that calls the model."""
        site = self.sites.here(2)
        if site >= 0 and site not in self.lines and len(self.lines) < _LINES:
            self.lines.add(site)
            self.recorder.record("held_out", site=site)


def tensors(value, depth: int = 4):
    """The plain, strided ones in it: in the arguments of a call, also in dictionaries in a list."""
    if type(value) in _PLAIN:
        if value.layout is torch.strided and not is_functorch_wrapped_tensor(value):
            yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from tensors(one, depth - 1)


def mark(tensor, storage) -> tuple:
    """What is another where somebody has changed a tensor: its version, and some of its bytes."""
    return None if tensor.is_inference() else tensor._version, _some_bytes(tensor, storage)


def _some_bytes(tensor, storage) -> int:
    """A checksum of some of its memory; 0 on a device, where only operators write."""
    start = tensor.storage_offset() * tensor.element_size()
    size = storage.nbytes() - start
    if tensor.device.type != "cpu" or size <= 0:
        return 0
    size = min(size, max(_BYTES, tensor.numel() * tensor.element_size()))
    begin = storage.data_ptr() + start
    found = 0
    for offset in (0, max(0, size - _BYTES) // 2, max(0, size - _BYTES)):
        found = zlib.crc32(ctypes.string_at(begin + offset, min(_BYTES, size)), found)
    return found
