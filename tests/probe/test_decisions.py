"""What the job's own files decide, with its lines."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from perfdoctor.injected._perfdoctor_probe.decisions import decisions

SCRIPT = """\
import ctypes
from data import shard

libc = ctypes.CDLL("libc.so.6")
conv = Conv1d(8, 8, 3, padding=1)

def collator(tokenizer):
    tokenizer(texts, padding="max_length")
    return DataCollatorWithPadding(tokenizer, padding="longest", pad_to_multiple_of=32)

def after_step():
    libc.malloc_trim(0)
"""


def _decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **texts: str) -> dict[str, tuple[str, int, str]]:
    """With these modules loaded, the script first."""
    ours = set()
    for name, text in texts.items():
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        ours.add(str(file))
        loaded = "__main__" if name == "main" else name
        module = ModuleType(loaded)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, loaded, module)
    found = decisions(lambda file: file not in ours)
    return {name: (Path(file).stem, line, function) for name, (file, line, function, _) in found.items()}


def test_padding_and_freed_memory_are_found_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _decided(monkeypatch, tmp_path, main=SCRIPT) == {
        "padding": ("main", 8, "collator"),
        "pad_to_multiple_of": ("main", 9, "collator"),
        "malloc_trim": ("main", 12, "after_step"),
    }


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ('PADDING = "max_length"', True),
        ('padding: str = "max_length"', False),  # no field of a class, nor given to anybody yet
        ('options["padding"] = "max_length"', True),
        ('options = {"padding": "max_length", "truncation": True}', True),
        ('class Collator:\n    padding: str = "max_length"', True),
        ('self.padding = "max_length"', True),
        ('PADDING = "longest"', False),
        ('width = rows if padding == "max_length" else 8', False),
    ],
)
def test_padding_may_be_asked_for_by_other_means(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, is_found: bool
) -> None:
    at = ("main", 2 + line.count("\n"), "<module>")
    assert _decided(monkeypatch, tmp_path, main=f"import torch\n{line}\n") == ({"padding": at} if is_found else {})


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ("for one in net.modules():\n    one.requires_grad = flag", 2),
        ("net.stem.requires_grad = False", 1),
        ("for one in net.parameters():\n    one.requires_grad = False", 0),
        ("for name, one in net.named_parameters():\n    if 'fc' not in name:\n        one.requires_grad = False", 0),
        ("net.stem.requires_grad_(False)", 0),
    ],
)
def test_an_attribute_that_is_set_on_a_module_and_freezes_nothing_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: str, line: int
) -> None:
    wanted = {"requires_grad": ("main", line, "<module>")} if line else {}
    assert _decided(monkeypatch, tmp_path, main=lines + "\n") == wanted


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ('GPT2Config(n_layer=2, activation_function="gelu_new")', {"activation_function": ("main", 1, "<module>")}),
        ('BertConfig(hidden_act="gelu_python")', {"hidden_act": ("main", 1, "<module>")}),
        ('BertConfig(hidden_act="gelu")', {}),
        (
            'AutoModel.from_config(config, attn_implementation="eager")',
            {"attn_implementation": ("main", 1, "<module>")},
        ),
        ('AutoModel.from_config(config, attn_implementation="sdpa")', {}),
        ('BertConfig(hidden_act=chosen, padding="longest")', {}),
    ],
)
def test_what_transformers_makes_of_single_operators_is_found_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str, found: dict[str, tuple[str, int, str]]
) -> None:
    assert _decided(monkeypatch, tmp_path, main=call) == found


def test_variables_that_keep_from_newer_instructions_are_found_where_they_are_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = """\
import os
print(os.environ["MKL_CBWR"], os.environ.get("ONEDNN_MAX_CPU_ISA"))
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

def reproducible():
    os.environ["MKL_CBWR"] = "COMPATIBLE"
"""
    assert _decided(monkeypatch, tmp_path, main=text) == {
        "ONEDNN_MAX_CPU_ISA": ("main", 3, "<module>"),
        "MKL_CBWR": ("main", 6, "reproducible"),
    }


@pytest.mark.parametrize(
    "line",
    [
        "mine = data[rank * n : (rank + 1) * n]",
        "mine = data[self.rank * n : self.rank * n + n]",
        "mine = torch.chunk(data, ranks)[rank]",
        "mine = np.array_split(order, dist.get_world_size())[dist.get_rank()]",
        "mine = Subset(data, range(rank * n, (rank + 1) * n))",
    ],
)
def test_data_cut_into_neighbours_for_each_rank_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    found = _decided(monkeypatch, tmp_path, main="from parts import cut\n", parts=f"def cut(data):\n    {line}\n")
    assert found == {"shard": ("parts", 2, "cut")}


def test_bounds_may_be_computed_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "def cut(rank):\n    first = rank * n\n    last = min(len(data), first + n)\n    return data[first:last]\n"
    assert _decided(monkeypatch, tmp_path, main=text) == {"shard": ("main", 4, "cut")}


@pytest.mark.parametrize(
    "line",
    [
        "mine = data[rank::ranks]",
        "mine = data[rank]",
        "mine = data[: len(data) // rank]",
        "for step in range(rank):\n    pass",
        "words = name.split('.')[0]  # of rank",
        "def (rank",
    ],
)
def test_what_deals_data_out_is_no_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    assert _decided(monkeypatch, tmp_path, main=line + "\n") == {}


def test_names_of_another_function_are_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "def one(rank):\n    first = rank\n\ndef other():\n    return data[first:first + 2]  # rank\n"
    assert _decided(monkeypatch, tmp_path, main=text) == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('groups = [{"params": encoder, "lr": 0.0}]', True),
        ('LR_SCALE = {"stem": 0.0, "head": 1.0}', True),
        ("spec = GroupSpec(lr_scale=0)", True),
        ("class Group:\n    learning_rate: float = 0.0", True),
        ("spec = GroupSpec(lr_scale=1.0)", False),
        ("schedule = Cosine(optimizer, min_lr=0.0, lr_decay=0.0)", False),
        ("schedule = Cosine(optimizer, last_lr=None, use_lr=False)", False),
        ("model = Model(dropout=0.0, color=0)", False),
    ],
)
def test_a_learning_rate_of_0_is_found_where_it_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, is_found: bool
) -> None:
    assert ("rate" in _decided(monkeypatch, tmp_path, main=text + "\n")) is is_found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("config = ViTConfig(hidden_size=256, num_hidden_layers=3)", True),
        ("config = T5Config(\n    d_model=128,\n    d_kv=32,\n)", True),
        ("layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)", True),
        ("layer = nn.TransformerDecoderLayer(d_model=64, nhead=4)", True),
        ("layer = nn.TransformerEncoderLayer(64, 4, 256)", False),
        ("layer = nn.Transformer(64, 4, 2, 2, 256)", False),
        ("layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=256)", False),
        ("config = ViTConfig(hidden_size=256, intermediate_size=1024)", False),
        ("config = ViTConfig(hidden_size=256, **sizes)", False),
        ("config = GPT2Config(n_embd=128)", False),
        ("config = DataConfig(batch_size=16)", False),
    ],
)
def test_a_feed_forward_part_that_is_left_at_its_default_is_found_where_the_model_is_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, is_found: bool
) -> None:
    assert ("feed_forward" in _decided(monkeypatch, tmp_path, main=text + "\n")) is is_found
