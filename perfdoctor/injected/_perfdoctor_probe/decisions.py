"""What the job's own files decide that no hook sees: padding, a function or a kind of attention asked of a library,
freed memory that is given back, data that is cut by rank, variables that keep libraries from newer instructions. By
their source alone: whether such a line runs is for others to say.
"""

import ast
import functools
import os

from .records import VECTOR_EXTENSION_VARIABLES
from .script import function_at, given, parsed, read
from .sites import users_modules
from .windows.source import called

_LARGEST = 1 << 18
"""Bytes of all files that are parsed: about 0.3 s, once."""
_GELUS = ("gelu_new", "gelu_fast", "gelu_python", "gelu_accurate")
"""Of transformers, made of single operators."""
_KEYWORDS = {
    "pad_to_multiple_of": None,
    "padding": ("max_length",),
    "activation_function": _GELUS,
    "hidden_act": _GELUS,
    "hidden_activation": _GELUS,
    "attn_implementation": ("eager",),
}
"""With the values that decide; None for any."""
_FUNCTIONS = ("malloc_trim",)
_SETTERS = ("setdefault", "putenv")
"""Functions that set a variable of the environment."""
_PARTS = ("array_split", "tensor_split", "chunk", "split")
"""Functions that cut something into as many parts as there are ranks."""
SHARD = "shard"
FEED_FORWARD = "feed_forward"
_OF_MODEL = ("hidden_size", "d_model", "dim")
"""By which configurations of transformers are told how wide a model is."""
_OF_FEED_FORWARD = frozenset(
    "intermediate_size d_ff hidden_dim encoder_ffn_dim decoder_ffn_dim ffn_dim mlp_ratio".split()
)
_OF_TORCH = {"TransformerEncoderLayer": 3, "TransformerDecoderLayer": 3, "Transformer": 5}
"""Layers of torch's, and with how many arguments they are told how wide the feed-forward part is."""
TRAINABLE = "requires_grad"
_OVER_PARAMETERS = ("parameters", "named_parameters")
RATE = "rate"
_OF_RATES = ("lr", "learning_rate")
_OF_SCHEDULES = frozenset("min max end final init initial start decay warmup".split())
"""Words in the names of rates that a schedule begins or ends with."""
_OTHERS = (TRAINABLE, "rank", "config(", "transformer")
_SPEAKS_OF = tuple(
    word.lower().encode()
    for words in (_KEYWORDS, _FUNCTIONS, VECTOR_EXTENSION_VARIABLES, _OF_RATES, _OTHERS)
    for word in words
)


@functools.lru_cache(maxsize=1)
def decisions(is_library) -> "dict[str, tuple]":
    """Places by name, the first one of each: a keyword's, a function's or a variable's own, `shard`, `rate` of a
    learning rate of 0, `feed_forward` of one whose width is left at a default, or `requires_grad` where an attribute of
    that name is set that may be none of a parameter's."""
    found: "dict[str, tuple]" = {}
    left = _LARGEST
    files = [vars(module)["__file__"] for module in users_modules(is_library).values()]
    for file in dict.fromkeys(os.path.abspath(file) for file in files if file.endswith(".py")):
        text = read(file, left)
        lower = text.lower()
        if any(word in lower for word in _SPEAKS_OF):
            left -= len(text)
            for name, line, function in _decided(text):
                found.setdefault(name, (file, line, function, None))
    return found


def _decided(text: bytes) -> "list[tuple]":
    """Names, lines and functions, in the order of the source."""
    tree, found = parsed(text), []
    if tree is not None:
        _look(tree, set(), found)
    return [(name, line, function_at(tree, line)) for name, line in sorted(found, key=lambda one: one[1])]


def _look(node, of_rank: "set[str]", found: list) -> None:
    """Within a node; `of_rank` has the names of the function that are computed from a rank."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        of_rank = set()
    if isinstance(node, ast.Assign) and _is_of_rank(node.value, of_rank):
        of_rank.update(one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))
    found += _decides(node, of_rank)
    if isinstance(node, ast.For) and called(node.iter) in _OVER_PARAMETERS:
        inside: "list[tuple]" = []
        for child in node.body:
            _look(child, of_rank, inside)
        found += [one for one in inside if one[0] != TRAINABLE]
        return
    for child in ast.iter_child_nodes(node):
        _look(child, of_rank, found)


def _decides(node, of_rank: "set[str]") -> "list[tuple]":
    if isinstance(node, ast.Subscript):
        if isinstance(node.ctx, ast.Store) and getattr(node.slice, "value", None) in VECTOR_EXTENSION_VARIABLES:
            return [(node.slice.value, node.lineno)]  # os.environ["MKL_CBWR"] = ...
        return [(SHARD, node.lineno)] if _is_shard(node, of_rank) else []
    found = [(word, value.lineno) for word, value in _said(node) if _counts(word, value)]
    found += [(RATE, value.lineno) for word, value in _said(node) if _is_rate(word) and _holds_nothing(value)]
    if isinstance(node, ast.Assign):
        found += [(TRAINABLE, value.lineno) for word, value in given(node) if word == TRAINABLE]
    if not isinstance(node, ast.Call):
        return found
    name = called(node)
    found += [(name, node.lineno)] if name in _FUNCTIONS else []
    found += [(FEED_FORWARD, node.lineno)] if _leaves_feed_forward(name, node) else []
    if name in _SETTERS and node.args and getattr(node.args[0], "value", None) in VECTOR_EXTENSION_VARIABLES:
        found.append((node.args[0].value, node.lineno))
    if name == "range" and _runs_through(node.args, of_rank):
        found.append((SHARD, node.lineno))
    return found


def _said(node) -> "list[tuple]":
    """Names and values that this part of a source gives, to a call or otherwise: `PADDING = "max_length"` too."""
    assigned = node.targets if isinstance(node, ast.Assign) else ()
    return [*given(node), *((one.id.lower(), node.value) for one in assigned if isinstance(one, ast.Name))]


def _counts(word: str, value) -> bool:
    """Whether it decides what libraries are asked for."""
    if word not in _KEYWORDS or not isinstance(value, ast.Constant):
        return False
    wanted = _KEYWORDS[word]
    return bool(value.value) if wanted is None else value.value in wanted


def _is_rate(word) -> bool:
    """Whether something of this name is a learning rate, or a factor of one."""
    parts = word.lower().split("_") if isinstance(word, str) else []
    named = "lr" in parts or "learning_rate" in word.lower() if parts else False
    return named and not _OF_SCHEDULES.intersection(parts)


def _holds_nothing(value) -> bool:
    """0, or a dictionary in which something is."""
    if isinstance(value, ast.Dict):
        return any(map(_holds_nothing, value.values))
    return isinstance(value, ast.Constant) and type(value.value) in (int, float) and value.value == 0


def _leaves_feed_forward(name: str, call) -> bool:
    """Whether it says how wide a transformer is, and leaves the width of its feed-forward part at a default."""
    words = {one.arg for one in call.keywords}
    if None in words or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    if name in _OF_TORCH:
        return len(call.args) < _OF_TORCH[name] and "dim_feedforward" not in words
    return name.endswith("Config") and not words.isdisjoint(_OF_MODEL) and words.isdisjoint(_OF_FEED_FORWARD)


def _is_shard(node, of_rank: "set[str]") -> bool:
    """`data[rank * n : (rank + 1) * n]`, `torch.chunk(data, ranks)[rank]`: neighbours stay together."""
    if isinstance(node.slice, ast.Slice):
        return node.slice.step is None and _runs_through((node.slice.lower, node.slice.upper), of_rank)
    cut = getattr(getattr(node.value, "func", None), "attr", "") if isinstance(node.value, ast.Call) else ""
    return cut in _PARTS and _is_of_rank(node.slice, of_rank)


def _runs_through(ends, of_rank: "set[str]") -> bool:
    return len(ends) == 2 and all(end is not None and _is_of_rank(end, of_rank) for end in ends)


def _is_of_rank(node, of_rank: "set[str]") -> bool:
    names = (getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node))
    return any(type(name) is str and (name in of_rank or name.lower().endswith("rank")) for name in names)
