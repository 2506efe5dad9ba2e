"""Which library did the convolutions, the recurrent layers and the attention of the operator window.

One pass over the host's events: what an operator such as `aten::convolution` calls says who does the work.
Attention that a model makes by hand is a product, a softmax over its result, and a product with that.
"""

from math import prod

import torch

from ..microbenchmarks.recurrent import replay_of
from ..rows import FLOATING, elements, milliseconds, operator
from . import conv_choice, layer_times, layers

_KEPT = 40
"""Kinds of convolution kept, the largest by time."""
_NODE = "autograd::engine::evaluate_function: "
_FORWARD = "aten::convolution"
_BACKWARD = "aten::convolution_backward"
_RECURRENT = {"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"}
_RECURRENT_KERNELS = ("aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn")
_ATTENTION = "aten::_scaled_dot_product_"
_MATH = "aten::_scaled_dot_product_attention_math"
_PRODUCTS = {"aten::bmm": 0, "aten::baddbmm": 1, "aten::mm": 0, "aten::addmm": 1}
"""Where their first factor is: products of several heads or samples at once, and of a single one."""
_LAYER = "aten::linear"
"""A product with weights, which is no part of attention."""
_PATIENCE = 300
"""Events after a product within which its softmax and the second product must come; views are events too."""
_ELEMENTS = 1 << 26
"""Largest convolution that torch is asked about; the tensors are never touched, but reserved."""
_TYPES = {**FLOATING, "float32": "float32"}


class _Kind:
    """Calls that are alike: time on the host (and on the device), forward and backward, in nanoseconds."""

    def __init__(self, **facts) -> None:
        self.facts = facts
        self.calls = 0
        self.spent = [0, 0]
        self.on_device = [0, 0]
        self.copies = 0
        self.made_of_others = False
        """Operators inside it have nodes of their own in the backward pass."""

    def told(self, title: layers.Title, steps: int, on_device: bool) -> dict:
        """What the rows of all kinds have in common. `title`: of the layer."""
        spent = self.on_device if on_device else self.spent
        return {
            "layer": title.name,
            "module": title.kind,
            "dtype": self.facts["dtype"],
            "calls_per_step": self.calls / steps,
            "ms_per_step": milliseconds(sum(spent), steps),
        }

    @property
    def total(self) -> int:
        return sum(self.on_device) or sum(self.spent)


class _Product:
    """A batched product of which a softmax may be taken."""

    def __init__(self, event, name: str, sizes: list, layer: int, dtype: str) -> None:
        self.batch, self.queries, self.width, self.keys = sizes
        self.layer = layer
        self.dtype = dtype
        self.softmaxed = ""
        self.dropout = 0.0
        self.masked = ""
        self.age = 0
        self.spent = event.duration_ns()
        self.end = event.start_ns() + event.duration_ns()
        self.numbers = [(event.sequence_nr(), name)]
        self.correlations = [event.correlation_id()]

    @property
    def scores(self) -> int:
        return self.batch * self.queries * self.keys

    def takes(self, event, name: str) -> None:
        """An operator on the scores."""
        self.numbers.append((event.sequence_nr(), name))
        self.correlations.append(event.correlation_id())
        start, duration = event.start_ns(), event.duration_ns()
        if start >= self.end:  # else it is part of one that was counted
            self.spent += duration
            self.end = start + duration


class Uses:
    """Reads the host's events, by thread and start, as `ops_window.divided` gives them."""

    def __init__(self) -> None:
        self.convolutions: "dict[tuple, _Kind]" = {}
        self.recurrent: "dict[tuple, _Kind]" = {}
        self.attention: "dict[tuple, _Kind]" = {}
        self.nodes: "dict[tuple, list]" = {}  # (thread, sequence number) -> [(operator, kind)]
        self.by_correlation: "dict[int, tuple]" = {}
        self.layer_end = 0

    def read(self, host: list, device: list) -> None:
        stack: "list[tuple]" = []  # (end, kind, phase, layer, backward)
        thread = None
        products: "list[_Product]" = []
        for this_thread, start, negative_duration, event in host:
            if this_thread != thread:
                thread, stack, products = this_thread, [], []
                self.layer_end = 0
            while stack and stack[-1][0] <= start:
                stack.pop()
            end = start - negative_duration
            _, kind, phase, layer, backward = stack[-1] if stack else (0, None, 0, -1, False)
            name = event.name()
            if name.startswith("aten::"):
                if kind is not None:
                    self._inside(kind, phase, event, name)
                elif name == _FORWARD:
                    kind = self._convolution(event, layer)
                elif name == _BACKWARD:
                    kind, phase = self._convolution_backward(event), 1
                elif backward:
                    pass
                elif name in _RECURRENT:
                    kind = self._recurrent(event, name, layer)
                elif name.startswith(_ATTENTION) and not name.endswith("_backward"):
                    kind = self._dot_product(event, name, layer)
                    self.nodes.setdefault((thread, event.sequence_nr()), []).append((name, kind))
                elif name == _LAYER:
                    self.layer_end = end
                elif start >= self.layer_end:
                    self._by_hand(event, name, products, layer, thread)
                if kind is not None and device:
                    self.by_correlation[event.correlation_id()] = (kind, phase)
            elif name.startswith(layer_times.RANGE):
                layer = int(name[len(layer_times.RANGE) :])
            elif name.startswith(_NODE):
                backward = True
                kind = self._owner(event, name[len(_NODE) :])
                phase = 1
                if kind is not None:
                    kind.spent[1] -= negative_duration
            elif device and kind is not None:
                self.by_correlation[event.correlation_id()] = (kind, phase)
            stack.append((end, kind, phase, layer, backward))
        for event in device:
            kind, phase = self.by_correlation.get(event.linked_correlation_id(), (None, 0))
            if kind is not None:
                kind.on_device[phase] += event.duration_ns()

    def _owner(self, event, node: str):
        """What the node of the backward pass belongs to. A frozen operator makes none, and another takes its number."""
        stem = node.partition("Backward")[0].lower()
        for name, kind in self.nodes.get((event.fwd_thread_id(), event.sequence_nr()), ()):
            if name[6:].replace("_", "") == stem:
                return kind
        return None

    def _inside(self, kind: _Kind, phase: int, event, name: str) -> None:
        facts = kind.facts
        if not phase:
            if name in _RECURRENT_KERNELS or ("conv" in name and not facts["kernel"] and name != "aten::_convolution"):
                facts["kernel"] = name
            elif name == "aten::copy_" and facts["kernel"] == "aten::_cudnn_rnn":
                kind.copies += event.duration_ns()
        if kind.made_of_others and not phase and event.sequence_nr() >= 0:
            self.nodes.setdefault((event.start_thread_id(), event.sequence_nr()), []).append((name, kind))

    # -- convolutions and recurrent layers ----------------------------------------------------------------

    def _convolution(self, event, layer: int) -> _Kind:
        shapes, how = event.shapes(), event.concrete_inputs()[3:9]
        dtype = _dtype(event)
        key = (str(shapes[:2]), str(how), dtype)
        kind = self.convolutions.get(key)
        if kind is None or "kernel" not in kind.facts:
            new = self.convolutions[key] = _Kind(
                kernel="", layer=layer, dtype=dtype, input=shapes[0], weight=shapes[1], how=how
            )
            if kind is not None:
                new.spent = kind.spent
            kind = new
        kind.calls += 1
        kind.spent[0] += event.duration_ns()
        return kind

    def _convolution_backward(self, event) -> _Kind:
        shapes, how = event.shapes(), event.concrete_inputs()[4:10]
        key = (str(shapes[1:3]), str(how), _dtype(event))
        kind = self.convolutions.get(key)
        if kind is None:  # its forward was before the window
            kind = self.convolutions[key] = _Kind()
        kind.spent[1] += event.duration_ns()
        return kind

    def _recurrent(self, event, name: str, layer: int) -> _Kind:
        shape, dtype = event.shapes()[0], _dtype(event)
        # Packed sequences are of other lengths in each call.
        key = (name, str(shape if len(shape) > 2 else shape[1:]), dtype, layer)
        kind = self.recurrent.get(key)
        if kind is None:
            kind = self.recurrent[key] = _Kind(
                kernel=name, layer=layer, dtype=dtype, input=shape, how=event.concrete_inputs()[3:]
            )
        kind.made_of_others = True
        kind.calls += 1
        kind.spent[0] += event.duration_ns()
        return kind

    # -- attention ----------------------------------------------------------------------------------------

    def _dot_product(self, event, name: str, layer: int) -> _Kind:
        query, key = event.shapes()[:2]
        concrete = event.concrete_inputs()
        made = "math" if name == _MATH else "fused"
        dropout = causal = 0
        if made == "math":
            dropout, causal = concrete[4] or 0.0, bool(concrete[5])
        facts = {
            "made": made,
            "kernel": name,
            "layer": layer,
            "dtype": _dtype(event),
            "sizes": [prod(query[:-2]), query[-2], query[-1], key[-2]],
            "mask": "add" if event.shapes()[3] else "causal" if causal else "",
            "dropout": float(dropout),
        }
        kind = self._attention(facts, event.duration_ns())
        kind.made_of_others = made == "math"
        return kind

    def _attention(self, facts: dict, spent: int) -> _Kind:
        key = tuple(str(facts[name]) for name in facts)
        kind = self.attention.get(key)
        if kind is None:
            kind = self.attention[key] = _Kind(**facts)
        kind.calls += 1
        kind.spent[0] += spent
        return kind

    def _by_hand(self, event, name: str, products: list, layer: int, thread: int) -> None:
        """Follows scores from the product that makes them to the product that uses them."""
        first = _PRODUCTS.get(name)
        if first is not None:
            self._product(event, name, first, products, layer, thread)
            return
        if not products:
            return
        for product in products:
            product.age += 1
        if products[0].age > _PATIENCE:
            products.pop(0)
            return
        shapes = event.shapes()
        count = elements(shapes[0]) if shapes else 0
        for product in reversed(products):
            if count == product.scores and shapes[0][-1] == product.keys:
                self._on_scores(event, name, shapes, product)
                return

    @staticmethod
    def _on_scores(event, name: str, shapes: list, product: _Product) -> None:
        if name in ("aten::_softmax", "aten::_safe_softmax"):
            dim = event.concrete_inputs()[1]
            if dim in (-1, len(shapes[0]) - 1):
                product.softmaxed = _dtype(event) or "float32"
        elif name == "aten::dropout" or name == "aten::native_dropout":
            product.dropout = float(event.concrete_inputs()[1] or 0.0)
        elif name.startswith("aten::masked_fill") and not product.softmaxed:
            product.masked = "fill"
        elif name in ("aten::add", "aten::add_") and not product.softmaxed:
            product.masked = product.masked or "add"
        product.takes(event, name)

    def _product(self, event, name: str, first: int, products: list, layer: int, thread: int) -> None:
        shapes = event.shapes()
        left, right = shapes[first], shapes[first + 1]
        if len(left) == len(right) == 2:
            left, right = [1, *left], [1, *right]
        elif len(left) != 3 or len(right) != 3:
            return
        for product in reversed(products):
            if product.softmaxed and left == [product.batch, product.queries, product.keys]:
                products.clear()
                product.takes(event, name)
                self._found(product, thread)
                return
        sizes = [*left, right[2]]
        products.append(_Product(event, name, sizes, layer, _dtype(event)))
        if first:
            products[-1].masked = "add"
        del products[:-3]

    def _found(self, product: _Product, thread: int) -> None:
        facts = {
            "made": "by hand",
            "kernel": "",
            "layer": product.layer,
            "dtype": product.dtype,
            "sizes": [product.batch, product.queries, product.width, product.keys],
            "mask": product.masked,
            "dropout": product.dropout,
        }
        kind = self._attention(facts, product.spent)
        kind.facts["softmax"] = product.softmaxed
        for number, name in product.numbers:
            if number >= 0:
                self.nodes.setdefault((thread, number), []).append((name, kind))
        for correlation in product.correlations:
            self.by_correlation[correlation] = (kind, 0)

    # -- the record ---------------------------------------------------------------------------------------

    def summary(self, titles: dict, on_cpu: bool, steps: int, layout_ns: int) -> "tuple[dict, list, list]":
        """The record; and of each recurrent layer and attention in it what it takes to call it again.

        `titles`: of layers, by index, as `layers.Layers.titles` has them. `layout_ns`: in kernels
        that turn tensors round. Torch is asked only on the CPU: tensors on a device would have to be allocated there.
        """
        convolutions, recurrent, attention = map(_largest, (self.convolutions, self.recurrent, self.attention))
        on_device = any(kind.on_device[0] for kind in (*convolutions, *recurrent, *attention))

        def told(kind: _Kind) -> dict:
            return kind.told(_title(kind, titles), steps, on_device)

        record = {
            "convolutions": [{**told(kind), **_convolution(kind, titles, on_cpu)} for kind in convolutions],
            "recurrent": [{**told(kind), **_recurrent(kind, steps)} for kind in recurrent],
            "attention": [{**told(kind), **_attention(kind, titles)} for kind in attention],
            "on_device": on_device,
            "layout_ms": milliseconds(layout_ns, steps),
        }
        again = [replay_of(kind, _title(kind, titles)) if on_cpu else None for kind in recurrent]
        return record, again, [(kind.facts.get("softmax"), kind.spent[1] > 0) for kind in attention]


def _largest(kinds: dict) -> list:
    return sorted((kind for kind in kinds.values() if kind.calls), key=lambda kind: -kind.total)[:_KEPT]


def _title(kind: _Kind, titles: dict) -> layers.Title:
    return titles.get(kind.facts["layer"], layers.Title())


def _convolution(kind: _Kind, titles: dict, on_cpu: bool) -> dict:
    facts, title = kind.facts, _title(kind, titles)
    return {
        "kernel": operator(facts["kernel"]),
        "choice": _choice(facts) if on_cpu else "",
        "chosen": title.backend,
        "input_shape": facts["input"],
        "weight_shape": facts["weight"],
        "channels_last": title.channels_last,
    }


def _recurrent(kind: _Kind, steps: int) -> dict:
    return {"kernel": operator(kind.facts["kernel"]), "copies_ms": milliseconds(kind.copies, steps)}


def _attention(kind: _Kind, titles: dict) -> dict:
    """With the package whose module makes it."""
    facts, module = kind.facts, _title(kind, titles).module
    return {
        **{name: facts[name] for name in ("made", "mask", "dropout")},
        **dict(zip(("batch", "queries", "width", "keys"), facts["sizes"])),
        "package": "" if module is None else type(module).__module__.partition(".")[0],
    }


def _dtype(event) -> str:
    return next((_TYPES[kind] for kind in event.dtypes() if kind in _TYPES), "")


def _choice(facts: dict) -> str:
    """What torch would choose now, between the steps: `Mkldnn`, `Slow2d`, ... The tensors are never touched."""
    if elements(facts["input"]) + elements(facts["weight"]) > _ELEMENTS:
        return ""
    try:
        dtype = getattr(torch, facts["dtype"])
        source, weight = torch.empty(facts["input"], dtype=dtype), torch.empty(facts["weight"], dtype=dtype)
    except Exception:  # a type without a name
        return ""
    return conv_choice.asked(source, weight, None, facts["how"])
