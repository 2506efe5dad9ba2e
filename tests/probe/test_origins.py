"""Where a loader's arguments are decided: followed through a job's source from the call that makes it."""

import sys
import textwrap
import types

import pytest

from perfdoctor.injected._perfdoctor_probe.sites import callers
from perfdoctor.injected._perfdoctor_probe.windows.origins import Sources, decided_at, passed_at

_STYLES = {
    "given": "made = Loader(data, batch_size=4)  # here",
    "on a line of its own": """
        made = Loader(
            data,
            batch_size=4,  # here
        )
    """,
    "by its place": "made = Loader(data, 4)  # here",
    "a constant": """
        BATCH = 4  # here
        made = Loader(data, batch_size=BATCH)
    """,
    "constants side by side": """
        RATE, BATCH = 0.1, 4  # here
        made = Loader(data, batch_size=BATCH)
    """,
    "a local name": """
        def main():
            size = 4  # here
            return Loader(data, size)
        made = main()
    """,
    "a field's default": """
        class Config:
            batch_size: int = 4  # here
            eval_batch_size: int = 16
        def build(cfg):
            return Loader(data, batch_size=cfg.batch_size)
        made = build(Config())
    """,
    "a default that is overridden": """
        class Config:
            def __init__(self, batch_size=16):
                self.batch_size = batch_size
        def build(cfg):
            return Loader(data, batch_size=cfg.batch_size)
        made = build(Config(batch_size=4))  # here
    """,
    "nested": """
        class Data:
            batch: int = 4  # here
        class Config:
            data = Data()
        class Engine:
            def __init__(self, cfg):
                self.size = cfg.data.batch
            def loader(self):
                return Loader(data, batch_size=self.size)
        made = Engine(Config()).loader()
    """,
    "an option": """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=4)  # here
        args = parser.parse_args([])
        made = Loader(data, batch_size=args.batch_size)
    """,
    "a dictionary": """
        CONFIG = {"loader": {"batch_size": 4}}  # here
        made = Loader(data, **CONFIG["loader"])
    """,
    "looked up": """
        CONFIG = {"batch": 4}  # here
        made = Loader(data, batch_size=CONFIG.get("batch", 8))
    """,
    "a parameter": """
        def make(source, size):
            return Loader(source, batch_size=size)
        made = make(data, 4)  # here
    """,
    "a parameter by its name, of several calls": """
        def make(source, size=16):
            return Loader(source, batch_size=size)
        other = make(data)
        made = make(data, size=4)  # here
    """,
    "a parameter's default": """
        def make(source, size=4):  # here
            return Loader(source, batch_size=size)
        made = make(data)
    """,
    "keywords handed on": """
        def make(source, **options):
            return Loader(source, **options)
        made = make(data, batch_size=4)  # here
    """,
    "through a method": """
        class Trainer:
            def __init__(self, size):
                self.size = size
            def loader(self, size):
                return Loader(data, batch_size=size)
            def run(self):
                return self.loader(self.size)
        made = Trainer(size=4).run()  # here
    """,
    "computed": """
        TOTAL = 8  # here
        made = Loader(data, batch_size=TOTAL // 2)
    """,
    "a class of its own": """
        class Mine(Loader):
            def __init__(self, source, size):
                super().__init__(source, batch_size=size)
        made = Mine(data, 4)  # here
    """,
}
_UNKNOWN = {
    "not given": "made = Loader(data)",
    "two of them": """
        CONFIG = [{"batch_size": 4}, {"batch_size": 4}]
        def build(cfg):
            return Loader(data, batch_size=cfg["batch_size"])
        made = build(CONFIG[0])
    """,
    "from elsewhere": """
        import os
        made = Loader(data, batch_size=int(os.environ.get("NOTHING_SUCH", "4")))
    """,
    "another value": """
        class Config:
            batch_size = 16
        cfg = Config()
        cfg.batch_size //= 4
        made = Loader(data, batch_size=cfg.batch_size)
    """,
    "a loader's own": """
        class Config:
            pass
        cfg = Config()
        setattr(cfg, "batch_size", 4)
        other = Loader(data, batch_size=4)
        made = Loader(data, batch_size=cfg.batch_size)
    """,
    "of two names": """
        a, b = 8, 2
        made = Loader(data, batch_size=a // b)
    """,
}


def _decided(text: str, tmp_path, monkeypatch) -> "tuple[int, str] | None":
    """The line of the constant and its function, by a job of this source."""
    led, kind, size, sources = _called(text, tmp_path, monkeypatch)
    return _line(decided_at(led, (kind, "Loader", "__init__"), "batch_size", 1, size, sources), tmp_path)


def _passed(text: str, tmp_path, monkeypatch) -> "tuple[int, str] | None":
    """The same of what the call is given."""
    led, kind, _, sources = _called(text, tmp_path, monkeypatch)
    return _line(passed_at(led, (kind, "Loader", "__init__"), "batch_size", 1, sources), tmp_path)


def _line(place: "tuple | None", tmp_path) -> "tuple[int, str] | None":
    assert place is None or place[0] == str(tmp_path / "job.py")
    return None if place is None else place[1:3]


def _called(text: str, tmp_path, monkeypatch) -> tuple:
    """The functions that led to the last loader of a job of this source, its class, its size, and the source."""
    file, seen = tmp_path / "job.py", {}

    class Loader:
        def __init__(self, source, batch_size=1, **options) -> None:
            led = callers(sys._getframe(1), lambda name: name != str(file))
            seen.setdefault("led", []).append((led, type(self).__name__, batch_size))

    module = types.ModuleType("job")
    module.__file__ = str(file)
    vars(module).update(Loader=Loader, data=[1])
    file.write_text(text)
    monkeypatch.setitem(sys.modules, "job", module)
    exec(compile(text, str(file), "exec"), vars(module))
    return *seen["led"][-1], Sources(lambda name: name != str(file))


@pytest.mark.parametrize("text", _STYLES.values(), ids=_STYLES)
def test_the_constant_that_decides_is_found(text: str, tmp_path, monkeypatch) -> None:
    text = textwrap.dedent(text)
    (here,) = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    found = _decided(text, tmp_path, monkeypatch)
    assert found is not None and found[0] == here


@pytest.mark.parametrize("text", _UNKNOWN.values(), ids=_UNKNOWN)
def test_nothing_is_told_where_no_one_constant_decides(text: str, tmp_path, monkeypatch) -> None:
    assert _decided(textwrap.dedent(text), tmp_path, monkeypatch) is None


def test_a_script_that_has_ended_is_looked_at_by_its_name(tmp_path, monkeypatch) -> None:
    """Python takes its `__file__` away then."""
    led, kind, size, _ = _called("made = Loader(data, batch_size=4)\n", tmp_path, monkeypatch)
    monkeypatch.delitem(sys.modules, "job")
    file = str(tmp_path / "job.py")
    for more, line in (((), None), ([file, file], (1, "<module>"))):
        sources = Sources(lambda name: name != file, more)
        assert _line(decided_at(led, (kind,), "batch_size", 1, size, sources), tmp_path) == line


_PASSED = {
    "a field": """
        class Config:
            batch_size: int = 4
        def build(cfg):
            return Loader(
                data,
                batch_size=cfg.batch_size,  # here
            )
        made = build(Config())
    """,
    "by its place": """
        size = 4
        made = Loader(data, size)  # here
    """,
    "options": """
        size = 4
        options = dict(
            batch_size=size,  # here
            shuffle=True,
        )
        made = Loader(data, **options)
    """,
    "one of two options": """
        options = {"batch_size": 4}
        others = dict(batch_size=8)
        made = Loader(data, **options)
    """,
    "nothing": "made = Loader(data)",
}


@pytest.mark.parametrize("text", _PASSED.values(), ids=_PASSED)
def test_what_the_call_is_given_is_found_whatever_decides_it(text: str, tmp_path, monkeypatch) -> None:
    text = textwrap.dedent(text)
    here = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# here")]
    found = _passed(text, tmp_path, monkeypatch)
    assert ([] if found is None else [found[0]]) == here


def test_the_function_around_it_is_told(tmp_path, monkeypatch) -> None:
    text = "def main():\n    return Loader(data, 4)\nmade = main()\n"
    assert _decided(text, tmp_path, monkeypatch) == (2, "main")
