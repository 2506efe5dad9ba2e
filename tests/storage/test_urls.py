"""URLs of storage, and what of them is shown."""

from __future__ import annotations

import pytest

from perfdoctor.storage import urls


@pytest.mark.parametrize(
    "url", ["s3://bucket/runs", "gs://b", "hdfs://node:8020/runs", "file:///tmp/runs", "a::s3://b"]
)
def test_storage_is_known_by_its_scheme(url: str) -> None:
    assert urls.is_url(url)


@pytest.mark.parametrize("path", [".perfdoctor/runs", "/tmp/s3://x", "C:/runs", "runs", "-o://x", ""])
def test_paths_are_no_urls(path: str) -> None:
    assert not urls.is_url(path)


@pytest.mark.parametrize(
    ("url", "around", "name"),
    [
        ("s3://bucket/runs/one", "s3://bucket/runs", "one"),
        ("s3://bucket/runs/one/", "s3://bucket/runs", "one"),
        ("abfs://box@account/runs/one?sig=x", "abfs://box@account/runs?sig=x", "one"),
    ],
)
def test_parts_of_a_url_make_it_again(url: str, around: str, name: str) -> None:
    assert urls.parted(url) == (around, name)
    assert urls.joined(around, name).rstrip("/") == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("sftp://me:hunter22@host/runs", "sftp://me:***@host/runs"),
        ("s3://AKIAABCDEFGHIJKLMNOP:s3cr3t@bucket/runs", "s3://***:***@bucket/runs"),
        ("abfs://box@account.dfs.core.windows.net/runs", "abfs://box@account.dfs.core.windows.net/runs"),
        ("https://host/runs?sv=2024&whatever=hunter22", "https://host/runs?***"),
    ],
)
def test_no_secret_is_shown(url: str, shown: str) -> None:
    assert urls.shown(url) == shown


@pytest.mark.parametrize("url", ["s3://key:hunter22@bucket/a", "x://b/a?sas=hunter22&v=1", "x://me:hunter%322@b/a"])
def test_a_backends_words_lose_what_only_the_url_gives_away(url: str) -> None:
    told = urls.without_secrets(f"403 for {url}:\n  password\thunter22 is wrong", url)
    assert "hunter" not in told
    assert told.endswith("is wrong")
    assert "\n" not in told


def test_a_backend_that_quotes_a_whole_page_is_cut_short() -> None:
    assert len(urls.without_secrets("<html>" * 1000, "s3://b")) == 300
