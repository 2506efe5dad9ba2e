"""What layers take, by the ranges around their calls in a profile.

What the backward pass does is found by number: autograd gives an operator's node the sequence number that the operator
had, and the node's `evaluate_function` event carries it.
"""

from .. import records

RANGE = records.LAYER_RANGE
_NODE = "autograd::engine::evaluate_function"
_OPERATOR = "aten::"
_FLOPS = (
    "aten::mm",
    "aten::bmm",
    "aten::addmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::mkldnn_rnn_layer",
    "aten::_scaled_dot_product",
)


class LayerTimes:
    """Nanoseconds, FLOPs and device nanoseconds by what they belong to.

    That is a layer's index (`("forward", 3)`; `("again", 3)` when recomputed in the backward pass), or the number
    of a node (`("node", thread, 17)`), whose layer is known once all forward operators have been read.
    """

    def __init__(self, flops) -> None:
        self.flops_of = flops
        self.spent: "dict[tuple, list[int]]" = {}
        self.owner: "dict[tuple[int, int], int]" = {}
        self.by_correlation: "dict[int, tuple]" = {}
        self.known_flops: "dict[tuple[str, str], int]" = {}
        self.total_ns = 0
        self.device_ns = 0
        self.flops = 0
        self.backward: "dict[int, list[int]]" = {}

    def read(self, host: list, with_device: bool) -> None:
        """The host's events, by thread and start."""
        stack: "list[list]" = []  # [end, own, key, index]
        thread = covered = None
        around = _around_layers(host)
        for place, (this_thread, start, negative_duration, event) in enumerate(host):
            end = start - negative_duration
            if this_thread != thread:
                self._finish(stack, None)
                thread, covered = this_thread, 0
            self._finish(stack, start)
            if start >= covered and place not in around:
                self.total_ns += end - start
                covered = end
            name = event.name()
            index = stack[-1][3] if stack else -1
            key = None
            if name.startswith(RANGE):
                index = int(name[len(RANGE) :])
                key = ("again" if self._in_backward(stack) else "forward", index)
            elif name.startswith(_NODE):
                key = ("node", event.fwd_thread_id(), event.sequence_nr())
            elif name.startswith(_OPERATOR):
                number = event.sequence_nr()
                if number >= 0:
                    # The last operator with a number is the one whose node got it.
                    self.owner[this_thread, number] = index
                if name.startswith(_FLOPS):
                    self._count(event, name, stack)
            if key is not None:
                if stack:
                    stack[-1][1] -= end - start
                stack.append([end, end - start, key, index])
            if with_device and stack:
                self.by_correlation[event.correlation_id()] = stack[-1][2]
        self._finish(stack, None)

    @staticmethod
    def _in_backward(stack: list) -> bool:
        return any(entry[2][0] != "forward" for entry in stack)

    def _finish(self, stack: list, start: "int | None") -> None:
        while stack and (start is None or stack[-1][0] <= start):
            _, own, key, _ = stack.pop()
            self._entry(key)[0] += own

    def _entry(self, key: tuple) -> "list[int]":
        return self.spent.setdefault(key, [0, 0, 0])

    def _count(self, event, name: str, stack: list) -> None:
        shapes = event.shapes()
        known = (name, str(shapes))
        if known not in self.known_flops:
            self.known_flops[known] = self.flops_of(name, shapes, event.concrete_inputs())
        self.flops += self.known_flops[known]
        if stack:
            self._entry(stack[-1][2])[1] += self.known_flops[known]

    def recomputes(self) -> bool:
        """Whether layers are called again in the backward pass."""
        return any(key[0] == "again" for key in self.spent)

    def read_device(self, device: list) -> bool:
        """The device's events, by the host operator that launched them; whether there were any such."""
        found = False
        for event in device:
            self.device_ns += event.duration_ns()
            key = self.by_correlation.get(event.linked_correlation_id())
            if key is not None:
                self._entry(key)[2] += event.duration_ns()
                found = True
        return found

    def of(self, index: int) -> "tuple[list[int], list[int]]":
        """Forward and backward of one layer."""
        if not self.backward:
            self.backward[-1] = [0, 0, 0]
            for key, spent in self.spent.items():
                if key[0] != "forward":
                    layer = key[1] if key[0] == "again" else self.owner.get(key[1:], -1)
                    total = self.backward.setdefault(layer, [0, 0, 0])
                    total[:] = [a + b for a, b in zip(total, spent)]
        nothing = [0, 0, 0]
        return self.spent.get(("forward", index), nothing), self.backward.get(index, nothing)


def _around_layers(host: list) -> "set[int]":
    """Places of the ranges that are no operators and within which layers are called: an optimizer's `step` that calls
    all of a training step, as in Lightning. What lies between its operators is Python's and the profiler's."""
    found: "set[int]" = set()
    open_: "list[tuple[int, int, int]]" = []
    for place, (thread, start, negative_duration, event) in enumerate(host):
        name = event.name()
        while open_ and (open_[-1][0] != thread or open_[-1][1] <= start):
            open_.pop()
        if name.startswith(RANGE):
            found.update(around for *_, around in open_)
        elif not name.startswith((_OPERATOR, _NODE)):
            open_.append((thread, start - negative_duration, place))
    return found
