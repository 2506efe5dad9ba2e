"""From recorded stacks to profiles, hot lines and files for other tools."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from recordings import CWD, PID, fetches, process, recorded, site, sites_window, steps, torch, worker
from rich.console import Console

from perfdoctor.evidence.model import Job, JobEnd, Missing
from perfdoctor.profiles import collapsed, hot_lines, speedscope, svg, tree
from perfdoctor.profiles.build import build
from perfdoctor.profiles.model import Below, Profile
from perfdoctor.recording.model import Recording, RunFacts
from perfdoctor.report import profile_console, profile_json

SCHEMA = json.loads(Path(__file__).with_name("speedscope.schema.json").read_text())
OTHER, INPUT, FORWARD, BACKWARD = range(4)
JOB = Job(
    command=("python", "train.py"),
    cwd="/home/ann/job",
    python_version="3.11.7",
    torch_version="2.13.0",
    torch_build="cpu",
    started="2026-01-01T00:00:00+00:00",
    end=JobEnd("finished", 0),
    world_size=1,
    local_ranks=1,
    workers=0,
    helpers=0,
    frameworks=(),
    environment=(),
)

LIBRARY = "/usr/lib/python3/site-packages/torch/nn/functional.py"
SITES = (
    site(0, 10, function="main"),
    site(1, 20, function="Net.forward"),
    site(2, 5, LIBRARY, "linear"),
    site(3, 8, LIBRARY, "Module._call_impl"),
    site(4, 12, function="main"),
    site(5, 1, "<string>", "<module>"),
    site(6, 300, LIBRARY, "_worker_loop"),
    site(7, 30, function="Data.__getitem__"),
)
NODES = ((-1, 0, 1), (0, 3, 0), (1, 1, 1), (2, 2, 0), (-1, 4, 1), (-1, 5, 2), (0, 6, 0), (6, 7, 1), (5, 2, 0))
"""main:10; its call; Net.forward:20; linear below it; main:12; <string>; a worker below main, and its data set; linear
below <string>."""
MAIN, _, NET, LINEAR, UPDATE, TYPED, _, DATA, FROM_TYPED = range(9)


def nodes() -> dict[str, Any]:
    above, sites, owner = map(list, zip(*NODES, strict=True))
    return {"k": "nodes", "n": len(NODES), "above": above, "site": sites, "owner": owner}


def stacks(*rows: tuple[int, int, int, int, int]) -> dict[str, Any]:
    """(step, part, thread, node, weight)."""
    names = ("step", "part", "thread", "node", "weight")
    return {"k": "stacks", "n": len(rows), **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))}


STEPS = steps(10_000, 40, forward_us=6_000, backward_us=1_000)
"""40 of 10 ms: 6 forward, 1 backward, 3 other."""


def profiles(tmp_path: Path, *records: Any, others: Sequence[Any] = ()) -> tuple[Profile, ...] | Missing:
    main = recorded(tmp_path, process(), torch(), *SITES, nodes(), *records)
    return build(Recording(RunFacts(cwd=CWD), (main, *others)))


def one(tmp_path: Path, *rows: tuple[int, int, int, int, int], extra: Sequence[Any] = ()) -> Profile:
    found = profiles(tmp_path, STEPS, *extra, stacks(*rows))
    assert not isinstance(found, Missing), found
    return found[0]


def test_a_part_is_divided_among_its_samples(tmp_path: Path) -> None:
    found = one(tmp_path, (30, FORWARD, 0, NET, 1), (31, FORWARD, 0, LINEAR, 2), (32, OTHER, 0, UPDATE, 9))
    assert {(stack.part, stack.samples): stack.ms for stack in found.stacks} == {
        ("forward", 2): pytest.approx(4.0),
        ("forward", 1): pytest.approx(2.0),
        ("other", 9): pytest.approx(3.0),
    }
    assert found.total_ms == pytest.approx(10.0)


def test_what_a_library_does_is_the_time_of_the_users_line_above_it(tmp_path: Path) -> None:
    found = one(tmp_path, (30, FORWARD, 0, NET, 1), (31, FORWARD, 0, LINEAR, 3), (32, OTHER, 0, UPDATE, 1))
    first, second = found.lines
    assert (str(first.site), first.part, first.samples) == ("train.py:20 in Net.forward", "forward", 4)
    assert first.share == pytest.approx(0.6)
    assert first.functions == (Below("linear", 0.75),)
    assert str(second.site) == "train.py:12 in main"


def test_calls_that_only_lead_to_forward_are_left_out(tmp_path: Path) -> None:
    (stack,) = one(tmp_path, (30, FORWARD, 0, LINEAR, 1)).stacks
    assert [frame.site.function for frame in stack.frames] == ["main", "Net.forward", "linear"]


def test_steps_of_the_warm_up_and_in_windows_do_not_count(tmp_path: Path) -> None:
    marked = steps(10_000, 40, forward_us=6_000, marked=[30])
    found = profiles(tmp_path, marked, stacks((0, FORWARD, 0, NET, 50), (30, FORWARD, 0, NET, 50), (31, 2, 0, NET, 1)))
    assert not isinstance(found, Missing)
    assert found[0].samples == 1


def test_code_that_is_in_no_file_is_the_users_where_there_is_no_other(tmp_path: Path) -> None:
    (line,) = one(tmp_path, (30, FORWARD, 0, FROM_TYPED, 1)).lines
    assert str(line.site) == "<string>:1 in <module>"


def test_operators_are_told_under_the_line_that_issues_them(tmp_path: Path) -> None:
    line = {
        "site": 1,
        "part": "forward",
        "ops_per_step": 2.0,
        "ms_per_step": 1.0,
        "ops_ms": 1.0,
        "share": 1.0,
        "ops_share": 1.0,
        "runs_per_step": 1.0,
        "operators": [{"name": "addmm", "share": 0.9}, {"name": "t", "share": 0.01}],
    }
    found = one(tmp_path, (30, FORWARD, 0, NET, 1), extra=[sites_window(lines=[line])])
    assert found.lines[0].operators == (Below("addmm", 0.9),)


def test_samples_in_which_only_perfdoctor_ran_are_no_line(tmp_path: Path) -> None:
    found = one(tmp_path, (30, FORWARD, 0, NET, 1), (30, BACKWARD, 0, -1, 1))
    assert [line.part for line in found.lines] == ["forward"]
    assert sum(stack.ms for stack in found.stacks) == pytest.approx(7.0)


def test_other_threads_have_profiles_of_their_own(tmp_path: Path) -> None:
    thread = {"k": "thread", "id": 1, "name": "Prefetcher"}
    found = profiles(tmp_path, STEPS, thread, stacks((30, FORWARD, 0, NET, 4), (30, FORWARD, 1, UPDATE, 1)))
    assert not isinstance(found, Missing)
    assert [profile.name for profile in found] == ["training thread", "thread Prefetcher"]
    assert found[1].lines[0].ms == pytest.approx(2.5)


def test_workers_are_one_profile_per_batch_without_the_stack_of_their_parent(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    helpers = [
        recorded(
            tmp_path / "workers",
            process(pid, ppid=PID),
            torch(),
            worker(number),
            *SITES,
            nodes(),
            fetches([8_000, 8_000]),
            stacks((-1, INPUT, 0, DATA, 3)),
            pid=pid,
        )
        for number, pid in enumerate((201, 202))
    ]
    found = profiles(tmp_path, STEPS, stacks((30, FORWARD, 0, NET, 1)), others=helpers)
    assert not isinstance(found, Missing)
    made = found[1]
    assert (made.name, made.unit, made.count, made.samples) == ("2 workers", "batch", 4, 6)
    assert made.total_ms == pytest.approx(8.0)
    assert made.lines[0].ms == pytest.approx(8.0)
    assert made.stacks[0].frames[0].site.function == "_worker_loop"


def test_a_run_that_was_not_sampled_has_no_profile(tmp_path: Path) -> None:
    found = profiles(tmp_path, STEPS)
    assert isinstance(found, Missing)
    assert "perfdoctor profile" in found.remedy


def test_a_damaged_tree_ends(tmp_path: Path) -> None:
    circle = {"k": "nodes", "n": 1, "above": 0, "site": 0, "owner": 1}
    main = recorded(
        tmp_path, process(), torch(), *SITES, circle, STEPS, stacks((30, FORWARD, 0, 0, 1), (30, 2, 0, 99, 1))
    )
    found = build(Recording(RunFacts(cwd=CWD), (main,)))
    assert not isinstance(found, Missing)
    assert found[0].samples == 2


def test_equal_lines_are_ordered_alike_every_time(tmp_path: Path) -> None:
    found = one(tmp_path, (30, OTHER, 0, UPDATE, 1), (30, OTHER, 0, MAIN, 1))
    assert [line.site.line for line in found.lines] == [10, 12]
    assert hot_lines.lines(found.stacks[::-1], 10.0) == found.lines


# ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sample(tmp_path: Path) -> Profile:
    rows = (
        (30, FORWARD, 0, NET, 1),
        (31, FORWARD, 0, LINEAR, 3),
        (32, OTHER, 0, UPDATE, 2),
        (32, BACKWARD, 0, MAIN, 2),
    )
    return one(tmp_path, *rows)


def test_a_tree_holds_all_the_time_once(sample: Profile) -> None:
    root = tree.flame(sample)
    assert root["value"] == pytest.approx(10.0)
    assert [child["name"] for child in root["children"]] == ["backward", "forward", "other"]

    def check(node: tree.FlameNode) -> None:
        assert sum(child["value"] for child in node["children"]) <= node["value"] + 1e-6
        for child in node["children"]:
            check(child)

    check(root)


def test_collapsed_stacks_are_frames_and_a_number(sample: Profile) -> None:
    text = collapsed.render([sample])
    assert "training thread;other;main (train.py:12) 2\n" in text
    assert sum(int(line.rpartition(" ")[2]) for line in text.splitlines()) == sample.samples


def test_names_cannot_break_a_collapsed_stack() -> None:
    assert collapsed._plain("a;b\nc") == "a:b c"


def test_speedscope_files_are_of_its_schema(sample: Profile) -> None:
    file = json.loads(speedscope.render([sample], "train.py"))
    jsonschema.validate(file, SCHEMA)
    (found,) = file["profiles"]
    assert sum(found["weights"]) == pytest.approx(found["endValue"]) == pytest.approx(10.0)
    names = {file["shared"]["frames"][number]["name"] for stack in found["samples"] for number in stack}
    assert {"forward", "Net.forward (train.py:20)"} <= names


def test_the_flame_graph_is_one_whole_svg(sample: Profile) -> None:
    text = svg.render([sample], "</title><script>alert(1)</script>")
    root = ET.fromstring(text)
    assert "<script" not in text and "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    boxes = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    width = float(root.get("width", 0))
    assert len(boxes) == 1 + 3 + 5
    assert all(float(b.get("x", -1)) >= 0 and float(b.get("x", 0)) + float(b.get("width", 0)) <= width for b in boxes)


def test_the_terminal_shows_the_lines_their_share_and_the_code(sample: Profile, tmp_path: Path) -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(profile_console.render([sample], JOB))
    text = capture.get()
    assert "train.py:20 in Net.forward" in text and "60 %" in text and "6.00 ms" in text
    assert "in linear 75 %" in text


def test_json_has_lines_and_the_tree(sample: Profile) -> None:
    file = json.loads(profile_json.render([sample], JOB))
    assert file["schema"] == profile_json.SCHEMA
    (found,) = file["profiles"]
    assert found["lines"][0]["site"]["line"] == 20
    assert found["tree"]["value"] == pytest.approx(10.0)
