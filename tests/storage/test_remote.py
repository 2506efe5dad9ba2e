"""One place in storage, by fsspec."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest
from stubborn import StubbornFileSystem

from perfdoctor.errors import PerfdoctorError
from perfdoctor.exits import Exit
from perfdoctor.storage.remote import opened


def test_what_goes_to_a_file_url_is_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "run.json").chmod(0o644)
    remote = opened(f"file://{tmp_path}/shared/runs")
    remote.require_writable()
    remote.make_run("one")
    remote.upload(tmp_path / "run.json", "one")
    made = list((tmp_path / "shared/runs").rglob("*"))
    assert sorted(path.name for path in made) == [".perfdoctor", "one", "run.json"]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made] == [0, 0, 0]
    assert remote.names() == [".perfdoctor", "one"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    remote, file = opened(f"file://{tmp_path}/runs"), tmp_path / "process-1-1.jsonl"
    remote.make_run("one")
    for text in ("first line\nsecond", "less"):
        file.write_text(text)
        remote.upload(file, "one")
    (kept,) = (tmp_path / "runs/one").iterdir()
    assert kept.read_text() == "less"


def test_downloads_are_for_their_owner_only_and_replace_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/trace.json").write_text("[]")
    remote = opened(f"file://{tmp_path}/runs")
    remote.download(tmp_path / "copy", "trace.json")
    assert (tmp_path / "copy").read_text() == "[]"
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        remote.download(tmp_path / "copy", "trace.json")


def test_there_is_nothing_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    remote = opened(f"file://{tmp_path}/nowhere")
    assert remote.names() == []
    assert not remote.is_recording()
    assert not remote.is_file()


@pytest.mark.parametrize("names", [["..", "."], ["../../etc/cron.d/x", "/"], ["run.json/.."]])
def test_no_name_in_storage_leads_out_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    remote = opened(f"file://{tmp_path}")
    monkeypatch.setattr(remote.files, "ls", lambda path, detail: [{"name": f"{path}/{name}"} for name in names])
    assert [name for name in remote.names() if "/" in name or name.startswith(".")] == []


def test_a_refusal_is_told_without_secrets(tmp_path: Path, stubborn: type[StubbornFileSystem]) -> None:
    stubborn.room = 0
    with pytest.raises(PerfdoctorError) as refused:
        opened(f"stubborn://me:s3cr3t@{tmp_path}?sas=hunter22").require_writable()
    error = refused.value
    assert (error.slug, error.exit_code) == ("storage", Exit.USAGE)
    assert f"cannot write to stubborn://me:***@{tmp_path}?***: " in error.message
    assert "SignatureDoesNotMatch" in error.message
    assert "s3cr3t" not in error.message + error.advice
    assert "hunter22" not in error.message + error.advice


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    fsspec.register_implementation("lacking", "no_such_package_here.FileSystem", errtxt="Install lackfs", clobber=True)
    with pytest.raises(PerfdoctorError) as missing:
        opened("lacking://bucket/runs")
    assert "Install lackfs" in missing.value.message
    assert missing.value.slug == "storage-package"
    assert f"{sys.executable} -m pip install" in missing.value.advice

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(PerfdoctorError, match="cannot open s3://bucket") as missing:
        opened("s3://bucket")
    assert "perfdoctor[storage]" in missing.value.advice


@pytest.mark.parametrize(("url", "slug"), [("memory://runs", "storage"), ("nonsense://runs", "storage")])
def test_urls_that_keep_nothing_are_refused(url: str, slug: str) -> None:
    with pytest.raises(PerfdoctorError) as refused:
        opened(url)
    assert refused.value.slug == slug
