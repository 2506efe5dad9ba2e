"""Local copies of recordings that lie in storage."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from perfdoctor.cli import app
from perfdoctor.commands.check import called
from perfdoctor.errors import PerfdoctorError
from perfdoctor.storage.copies import latest, local, origin

DEMO = Path(__file__).parent.parent / "recordings/demo"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Storage with three recordings: two of them of one program, a minute apart."""
    for name in ("20261122-120000-train", "20261123-120000-train-0a1b2c3d", "20261123-120100-train-1a1b2c3d"):
        shutil.copytree(DEMO, tmp_path / "runs" / name)
    return tmp_path / "runs"


def _url(path: Path) -> str:
    return f"file://{path}"


def test_a_word_that_is_no_url_is_a_path() -> None:
    assert local("runs/one") == Path("runs/one")
    assert origin(Path("runs/one")) == "runs/one"


def test_a_recording_is_copied_for_its_reader_only(runs: Path) -> None:
    url = _url(runs / "20261122-120000-train")
    copy = local(url)
    assert sorted(path.name for path in copy.iterdir()) == sorted(path.name for path in DEMO.iterdir())
    assert all((copy / path.name).read_bytes() == path.read_bytes() for path in DEMO.iterdir())
    seen = [copy.parent, copy, *copy.iterdir()]
    assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in seen] == [0] * len(seen)
    assert origin(copy) == url
    assert origin(copy / "job.out") == f"{url}/job.out"
    assert called(copy) == url


def test_what_was_copied_is_not_copied_again(runs: Path) -> None:
    url = _url(runs / "20261122-120000-train")
    assert local(url) == local(f"{url}") == local(url)


def test_recordings_of_the_same_programs_other_nodes_come_along(runs: Path) -> None:
    copy = local(_url(runs / "20261123-120000-train-0a1b2c3d"))
    found = sorted(path.name for path in copy.parent.iterdir())
    assert found == ["20261123-120000-train-0a1b2c3d", "20261123-120100-train-1a1b2c3d"]


def test_a_single_file_is_copied_too(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    copy = local(_url(tmp_path / "trace.json"))
    assert copy.read_text() == '{"traceEvents": []}'
    assert copy.name == "trace.json"


def test_a_folder_of_recordings_says_which_there_are(runs: Path) -> None:
    with pytest.raises(PerfdoctorError) as error:
        local(_url(runs))
    assert "holds 3: 20261123-120100-train-1a1b2c3d, 20261123-120000-train-0a1b2c3d" in error.value.message
    assert error.value.advice.endswith(f"the latest is {_url(runs)}/20261123-120100-train-1a1b2c3d")
    assert latest(_url(runs)) == f"{_url(runs)}/20261123-120100-train-1a1b2c3d"


def test_a_url_without_a_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(PerfdoctorError) as error:
        local(_url(tmp_path / "nowhere"))
    assert error.value.slug == "not-a-recording"
    assert latest(_url(tmp_path)) == ""


def test_a_report_of_a_url_names_the_url(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = _url(runs / "20261122-120000-train")
    with pytest.raises(SystemExit) as end:
        app(["report", "--fail-on", "never", url])
    assert end.value.code == 0
    said = capsys.readouterr()
    assert url in "".join(said.out.split())
    assert "perfdoctor-" not in said.out + said.err, "the copy is nobody's business"


def test_two_recordings_in_storage_are_put_side_by_side(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [_url(runs / name) for name in ("20261122-120000-train", "20261123-120000-train-0a1b2c3d")]
    with pytest.raises(SystemExit) as end:
        app(["diff", *words, "--output", "json"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert all(f'"recording": "{url}"' in out for url in words)
