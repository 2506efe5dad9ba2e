"""Two arms of a repository as directories."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.gate import worktrees
from perfdoctor.gate.worktrees import Trees


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits on main; `train.py` says which, and a data set that is not tracked."""
    root = tmp_path / "project"
    root.mkdir()
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(root)
    run("init", "--quiet", "--initial-branch", "main")
    run("config", "user.email", "ann@example.org")
    run("config", "user.name", "Ann")
    (root / ".gitignore").write_text("data/\n")
    commit(root, "one")
    run("branch", "old")
    commit(root, "two")
    (root / "data").mkdir()
    (root / "data" / "images.bin").write_text("pixels")
    return root.resolve()


def run(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)


def commit(root: Path, text: str) -> None:
    (root / "train.py").write_text(f"print({text!r})\n")
    run("add", "--all")
    run("commit", "--quiet", "--message", text)


@contextmanager
def prepared(root: Path, ref: str = "old", setup: str = "", merge_base: bool = True) -> Iterator[Trees]:
    with worktrees.prepared(
        ref, merge_base=merge_base, setup=setup, python=sys.executable, where=root / ".perfdoctor" / "runs" / "trees-1"
    ) as trees:
        yield trees


def clean(root: Path) -> None:
    """Nothing of a gate is left."""
    listed = subprocess.run(["git", "worktree", "list"], cwd=root, capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1
    assert not (root / ".perfdoctor" / "runs" / "trees-1").exists()


def test_each_arm_has_its_own_files_and_the_same_data(repository: Path) -> None:
    with prepared(repository) as trees:
        assert (trees.before.root / "train.py").read_text() == "print('one')\n"
        assert (trees.after.root / "train.py").read_text() == "print('two')\n"
        for tree in (trees.before, trees.after):
            assert (tree.root / "data" / "images.bin").read_text() == "pixels"
            assert tree.environment["PYTHONHASHSEED"] == "0"
        assert len(str(trees.before.root)) == len(str(trees.after.root))
        assert not trees.identical
        assert trees.linked.problems() == []
        (trees.after.root / "data" / "images.bin").write_text("other pixels")
        assert "images.bin" in trees.linked.problems()[0]
        assert trees.before.title.startswith("merge base ")
        assert trees.after.title.startswith("HEAD ")
    clean(repository)


def test_what_is_not_committed_is_measured_as_it_is_and_stays(repository: Path) -> None:
    (repository / "train.py").write_text("print('three')\n")
    (repository / "helper.py").write_text("x = 1\n")
    with prepared(repository, "main") as trees:
        assert (trees.before.root / "train.py").read_text() == "print('two')\n"
        assert (trees.after.root / "train.py").read_text() == "print('three')\n"
        assert (trees.after.root / "helper.py").exists()
        assert not (trees.before.root / "helper.py").exists()
        assert trees.after.title == "working tree"
        assert any("not committed" in note for note in trees.notes)
        assert any("helper.py" in note for note in trees.notes)
    assert (repository / "train.py").read_text() == "print('three')\n"
    stashes = subprocess.run(["git", "stash", "list"], cwd=repository, capture_output=True, text=True, check=True)
    assert stashes.stdout == ""
    clean(repository)


def test_the_same_tree_is_identical(repository: Path) -> None:
    with prepared(repository, "main") as trees:
        assert trees.identical
    (repository / "new.py").write_text("")
    with prepared(repository, "main") as trees:
        assert not trees.identical


def test_the_merge_base_counts_unless_told_otherwise(repository: Path) -> None:
    run("checkout", "--quiet", "-b", "branch", "old")
    commit(repository, "three")
    with prepared(repository, "main") as trees:
        assert (trees.before.root / "train.py").read_text() == "print('one')\n"
    with prepared(repository, "main", merge_base=False) as trees:
        assert (trees.before.root / "train.py").read_text() == "print('two')\n"


def test_paths_into_the_repository_lead_into_each_side(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"src:{tmp_path}/elsewhere")
    with prepared(repository) as trees:
        assert trees.within(trees.before, f"{repository}/train.py") == f"{trees.before.root}/train.py"
        assert trees.within(trees.before, f"{repository}-2/train.py") == f"{repository}-2/train.py"
        assert trees.within(trees.before, "--lr=1") == "--lr=1"
        assert trees.before.environment["PYTHONPATH"] == f"{trees.before.root}/src:{tmp_path}/elsewhere"
        assert trees.cwd(trees.after) == trees.after.root


def test_files_of_another_arm_are_found(repository: Path) -> None:
    with prepared(repository) as trees:
        own, other = f"{trees.before.root}/train.py", f"{trees.after.root}/train.py"
        installed = f"{repository}/package/__init__.py"
        found = worktrees.foreign_sources([own, other, installed, "/usr/lib/x.py"], trees.before, trees)
        assert found == [other, installed]
        same = worktrees.fingerprint_of([own], trees.before)
        assert list(same) == ["train.py"]
        assert same != worktrees.fingerprint_of([other], trees.after)


def test_no_repository_no_ref_and_no_common_ancestor_say_what_to_do(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PerfdoctorError) as caught, prepared(repository, "no-such-branch"):
        pass
    assert (caught.value.slug, "fetch-depth: 0" in caught.value.advice) == ("no-such-ref", True)
    run("checkout", "--quiet", "--orphan", "alone")
    commit(repository, "alone")
    with pytest.raises(PerfdoctorError) as caught, prepared(repository, "main"):
        pass
    assert caught.value.slug == "no-merge-base"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PerfdoctorError) as caught, prepared(tmp_path, "main"):
        pass
    assert (caught.value.slug, "baseline" in caught.value.advice) == ("not-a-repository", True)
    clean(repository)


def test_a_set_up_command_runs_in_each_arm_and_its_failure_is_shown(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (repository / ".gitignore").write_text("data/\n*.so\n")
    (repository / "fast.so").write_text("built before")
    command = "cp train.py built.py && echo new > fast.so && pip --version"
    with prepared(repository, setup=f"{command} && python -c 'import sys; print(sys.prefix)' > where") as trees:
        assert (trees.before.root / "built.py").read_text() == "print('one')\n"
        assert (trees.after.root / "built.py").read_text() == "print('two')\n"
        places = [(tree.root / "where").read_text().strip() for tree in (trees.before, trees.after)]
        assert len(set(places)) == 2
        assert trees.before.python.startswith(places[0])
        assert (repository / "fast.so").read_text() == "built before"
    with pytest.raises(PerfdoctorError) as caught, prepared(repository, setup="echo no compiler >&2; exit 3"):
        pass
    assert caught.value.slug == "setup-failed"
    assert "no compiler" in capfd.readouterr().err
    clean(repository)


def test_what_a_killed_gate_left_is_cleared(repository: Path) -> None:
    left = repository / ".perfdoctor" / "runs" / "trees-999999999"
    left.mkdir(parents=True)
    with prepared(repository):
        assert not left.exists()
