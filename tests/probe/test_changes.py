"""Stand-ins for functions of libraries, among what the job itself asks about its stack."""

from __future__ import annotations

import inspect
import types
from typing import Any
from unittest import mock

from perfdoctor.injected._perfdoctor_probe import changes
from perfdoctor.injected._perfdoctor_probe.changes import Changes


def _stand_in(file: str) -> Any:
    """A function of a file of the probe's that calls what it is given."""
    scope: dict[str, Any] = {"__name__": changes.__name__}
    exec(compile("def stand_in(function):\n    return function()\n", file, "exec"), scope)
    return scope["stand_in"]


def test_the_module_of_a_stand_in_is_found_without_a_look_through_all_modules() -> None:
    """A file by its name, which warnings pass over, is not there: `inspect` would look for it for each frame anew."""
    owner = types.SimpleNamespace(ask=None)
    made = Changes()
    with mock.patch.dict(inspect.modulesbyfile):  # type: ignore[attr-defined]
        made.put(owner, "ask", _stand_in(changes.__file__))
        frame = owner.ask(inspect.currentframe)
        assert frame.f_code.co_filename.endswith("(importlib._bootstrap)")
        assert inspect.modulesbyfile[frame.f_code.co_filename] == changes.__name__  # type: ignore[attr-defined]
        assert inspect.getmodule(frame) is changes
    made.take_back()
    assert owner.ask is None
