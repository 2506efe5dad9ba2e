"""The two arms of a gate as directories: what the job was, and what it is, each a git worktree of its own.

Both lie side by side under names of the same length, for the length of a path moves memory about, and timings with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit
from .git import git
from .model import AFTER, BEFORE
from .untracked import Snapshot, link_untracked, new_sources, take

_SETUP_LINES = 20


@dataclass(frozen=True, slots=True)
class Tree:
    """One arm."""

    root: Path
    """Of the worktree."""
    title: str
    """`merge base 4f2c1a9 of main`."""
    python: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Trees:
    """Both arms."""

    repository: Path
    before: Tree
    after: Tree
    identical: bool
    """Both hold the very same files."""
    notes: tuple[str, ...]
    linked: Snapshot
    """What both share, as it was before the job ran."""

    def cwd(self, tree: Tree) -> Path:
        """Where the user stands, in that arm."""
        return tree.root / Path.cwd().resolve().relative_to(self.repository)

    def within(self, tree: Tree, text: str) -> str:
        """A path into the repository as a path into that arm; other text as it is."""
        top = str(self.repository)
        return str(tree.root) + text[len(top) :] if text == top or text.startswith(top + os.sep) else text


def repository_of(directory: Path) -> Path:
    """The top of the working tree. Raises PerfdoctorError outside of one."""
    try:
        return Path(git("rev-parse", "--show-toplevel", cwd=directory)).resolve()
    except PerfdoctorError as error:
        if error.slug == "no-git":
            raise
        raise PerfdoctorError(
            f"{directory} is not in a git repository, so there is nothing to compare with",
            slug="not-a-repository",
            advice="use a stored baseline: `perfdoctor baseline write SCRIPT`, then `perfdoctor gate --baseline "
            "perf-baseline.json SCRIPT`",
        ) from error


def base_commit(repository: Path, ref: str, merge_base: bool) -> tuple[str, str]:
    """The commit to compare with, and what to call it. Raises PerfdoctorError for a ref that is not there."""
    try:
        commit = git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", cwd=repository)
    except PerfdoctorError as error:
        raise PerfdoctorError(
            f"there is no commit {ref} in {repository}",
            slug="no-such-ref",
            advice="fetch it first (in GitHub's checkout action: fetch-depth: 0), or name another with --against",
        ) from error
    if not merge_base:
        return commit, f"{ref} ({commit[:7]})"
    try:
        base = git("merge-base", commit, "HEAD", cwd=repository)
    except PerfdoctorError as error:
        raise PerfdoctorError(
            f"{ref} and HEAD have no common ancestor here",
            slug="no-merge-base",
            advice="fetch the whole history (fetch-depth: 0), or compare with the commit itself: --no-merge-base",
        ) from error
    return base, f"merge base {base[:7]} of {ref}"


@contextmanager
def prepared(ref: str, *, merge_base: bool, setup: str, python: str, where: Path) -> Iterator[Trees]:
    """Both worktrees, with what is not tracked linked into them; taken away again at the end.

    Raises PerfdoctorError with the reason when one cannot be made.
    """
    repository = repository_of(Path.cwd())
    commit, title = base_commit(repository, ref, merge_base)
    head = git("rev-parse", "HEAD", cwd=repository)
    # A commit of the working tree as it is, which no branch knows; nothing when it is clean.
    dirty = git("stash", "create", cwd=repository)
    notes = []
    if dirty:
        notes.append("the working tree has changes that are not committed: it is measured as it is")
    untracked = new_sources(repository)
    if untracked:
        notes.append(f"not tracked, so only on the new arm: {', '.join(untracked[:5])}")
    same = git("rev-parse", f"{commit}^{{tree}}", cwd=repository) == git(
        "rev-parse", f"{dirty or head}^{{tree}}", cwd=repository
    )
    where.mkdir(parents=True, exist_ok=True)
    where = where.resolve()
    _remove_left(repository, where.parent)
    arms = {
        BEFORE: (commit, title),
        AFTER: (dirty or head, "working tree" if dirty or untracked else f"HEAD ({head[:7]})"),
    }
    trees: dict[str, Tree] = {}
    linked: list[Path] = []
    try:
        for name, (revision, called) in arms.items():
            root = where / name
            git("worktree", "add", "--quiet", "--detach", "--force", str(root), revision, cwd=repository)
            linked += link_untracked(repository, root, where, () if name == AFTER else untracked, compiled=not setup)
            environment = {**os.environ, "PYTHONHASHSEED": "0"}
            trees[name] = Tree(root.resolve(), called, python, environment)
        if setup:
            trees = {name: _set_up(tree, setup) for name, tree in trees.items()}
        shared = take(dict.fromkeys(linked))
        found = Trees(repository, trees[BEFORE], trees[AFTER], same and not untracked, tuple(notes), shared)
        yield replace(found, before=_own_paths(found, found.before), after=_own_paths(found, found.after))
    finally:
        for name in arms:
            with contextlib.suppress(PerfdoctorError):
                git("worktree", "remove", "--force", str(where / name), cwd=repository)
        shutil.rmtree(where, ignore_errors=True)
        _remove_left(repository, where.parent)


def _remove_left(repository: Path, runs: Path) -> None:
    """Worktrees of a gate that was killed."""
    for left in runs.glob("trees-*"):
        number = left.name.removeprefix("trees-")
        if number.isdecimal() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(left, ignore_errors=True)
    with contextlib.suppress(PerfdoctorError):
        git("worktree", "prune", cwd=repository)


def _own_paths(trees: Trees, tree: Tree) -> Tree:
    """PYTHONPATH entries inside the repository lead into each arm's own files."""
    old = tree.environment.get("PYTHONPATH")
    if not old:
        return tree
    moved = ":".join(trees.within(tree, str(Path(entry).absolute())) if entry else "" for entry in old.split(":"))
    return replace(tree, environment={**tree.environment, "PYTHONPATH": moved})


def _set_up(tree: Tree, command: str) -> Tree:
    """Run the user's set-up command in a virtual environment of the arm's own, which sees what is installed now."""
    home = tree.root.parent / f"env-{tree.root.name}"
    _make_environment(tree.python, home)
    environment = {
        **tree.environment,
        "VIRTUAL_ENV": str(home),
        "PATH": f"{home / 'bin'}:{tree.environment.get('PATH', '')}",
    }
    print(f"perfdoctor: {tree.title}: {command}", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, shell=True, cwd=tree.root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-_SETUP_LINES:])
        print(said, file=sys.stderr)
        raise PerfdoctorError(
            f"{tree.title}: `{command}` failed with exit code {done.returncode}",
            slug="setup-failed",
            advice="its last words are above; try it in a fresh clone",
            exit_code=Exit.NOT_MEASURABLE,
        )
    return replace(tree, python=str(home / "bin" / Path("python")), environment=environment)


def _make_environment(python: str, home: Path) -> None:
    """A virtual environment that sees what `python` sees, pip included; what is installed into it stays in it."""
    code = "import sys, importlib.util as u; print(u.find_spec('pip') is not None, *sys.path, sep='\\n')"
    has_pip, *seen = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    # Without a pip of its own it is made in a moment instead of in ten seconds.
    own_pip = [] if has_pip != "True" else ["--without-pip"]
    subprocess.run([python, "-m", "venv", *own_pip, str(home)], check=True, stdout=subprocess.DEVNULL)
    (packages,) = home.glob("lib/python*/site-packages")
    sites = [path for path in seen if path.endswith("-packages")]
    (packages / "perfdoctor_gate.pth").write_text("\n".join(sites) + "\n")
    if own_pip:
        shim = home / "bin" / "pip"
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(str(home / "bin" / "python"))} -m pip "$@"\n')
        shim.chmod(0o755)


def foreign_sources(sources: Sequence[str], tree: Tree, trees: Trees) -> list[str]:
    """Files of the job that belong to another arm, or to the repository itself: it would measure the wrong code."""
    others = [trees.repository, *(t.root for t in (trees.before, trees.after) if t.root != tree.root)]
    found = []
    for name in sources:
        path = Path(name).resolve()
        if path.is_relative_to(tree.root):
            continue
        if any(path.is_relative_to(other) for other in others) and not Path(name).is_relative_to(tree.root):
            found.append(name)
    return found


def fingerprint_of(sources: Sequence[str], tree: Tree) -> dict[str, str]:
    """Hash of each of the job's own files, by its path within the arm."""
    found = {}
    for name in sources:
        path = Path(name)
        if path.is_relative_to(tree.root):
            try:
                found[str(path.relative_to(tree.root))] = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                continue
    return found
