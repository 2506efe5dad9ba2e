"""Recordings in an object store: a real S3 server on loopback, and whole jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stop_together import free_port

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")
boto3 = pytest.importorskip("boto3")

pytestmark = pytest.mark.e2e

KEY, SECRET = "loopback-access-key", "loopback-secret-hunter22"
BUCKET = "recordings"
TIMEOUT_S = 120
JOB = """
import sys, time
from pathlib import Path
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps, until = int(sys.argv[1]), Path(sys.argv[2])
print(f"training for {steps} steps", flush=True)
until.with_name("begun").touch()
for step in range(steps):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(0.01)
    if until.exists():
        break
print(f"loss {loss.item():.6f}")
sys.exit(3)
"""


@dataclass(frozen=True)
class Shop:
    """A server, its client, and a directory to run in."""

    client: Any
    endpoint: str
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        dropped = ("PERFDOCTOR", "PYTHON", "VIRTUAL_ENV", "AWS_")
        return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.directory),
            "TMPDIR": str(self.directory / "tmp"),
            "XDG_STATE_HOME": str(self.directory / "state"),
        }

    def start(self, *words: str, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[str]:
        changed = {**self.environment, **(env or {})}
        return subprocess.Popen(
            [sys.executable, "-m", "perfdoctor", *words],
            cwd=self.directory,
            env={name: value for name, value in changed.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, env: Mapping[str, str | None] | None = None) -> tuple[int, str, str]:
        process = self.start(*words, env=env)
        out, err = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, out, err

    def objects(self, bucket: str = BUCKET, prefix: str = "") -> dict[str, bytes]:
        found = self.client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        return {one["Key"]: self.client.get_object(Bucket=bucket, Key=one["Key"])["Body"].read() for one in found}

    def run_of(self, prefix: str) -> str:
        """The one recording below a prefix, as a URL."""
        (name,) = {key.split("/")[1] for key in self.objects(prefix=f"{prefix}/") if key.count("/") == 2}
        return f"s3://{BUCKET}/{prefix}/{name}"


@pytest.fixture(scope="module")
def server() -> Iterator[Shop]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        yield Shop(client, endpoint, Path())
        server.stop()


@pytest.fixture
def shop(server: Shop, tmp_path: Path) -> Shop:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "train.py").write_text(JOB)
    return Shop(server.client, server.endpoint, tmp_path)


@pytest.fixture(scope="module")
def checked(server: Shop, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, tuple[int, str, str]]:
    """A whole check of a job that fails at its end, and so has the report's exit code and its own words to keep."""
    directory = tmp_path_factory.mktemp("checked")
    (directory / "tmp").mkdir()
    (directory / "train.py").write_text(JOB)
    shop = Shop(server.client, server.endpoint, directory)
    words = (
        "--to-end",
        "--job-output",
        "passthrough",
        "--runs",
        f"s3://{BUCKET}/checked",
        "--output",
        "json:report.json",
    )
    return shop, shop.run("check", *words, "train.py", "150", "until")


def _without_ours(stderr: str) -> str:
    return re.sub(r"^perfdoctor: .*\n", "", stderr, flags=re.MULTILINE)


def test_a_recording_goes_to_the_bucket_and_nowhere_else(checked: tuple[Shop, tuple[int, str, str]]) -> None:
    shop, (code, out, err) = checked
    assert code == 4, err
    assert "training for 150 steps" in out
    assert _without_ours(err) == ""
    names = [key.rpartition("/")[2] for key in shop.objects(prefix="checked/2")]
    assert {"run.json", "machine.json", "host.jsonl"} < set(names)
    assert any(name.startswith("process-") for name in names)
    assert shop.run_of("checked") in out.replace("\n", "")
    assert list((shop.directory / "tmp").glob("perfdoctor*")) == []
    assert sorted(path.name for path in shop.directory.iterdir()) == ["begun", "report.json", "tmp", "train.py"]


def test_no_credential_is_in_the_recording(checked: tuple[Shop, tuple[int, str, str]]) -> None:
    shop, (_, out, err) = checked
    everything = b"".join(shop.objects().values()).decode("utf-8", "replace") + out + err
    assert shop.directory.joinpath("report.json").read_text().strip()
    for secret in (KEY, SECRET, shop.endpoint):
        assert secret not in everything + shop.directory.joinpath("report.json").read_text()


def test_a_report_of_the_url_is_that_of_the_check(checked: tuple[Shop, tuple[int, str, str]]) -> None:
    shop, _ = checked
    run = shop.run_of("checked")
    code, out, err = shop.run("report", run, "--output", "json")
    assert code == 4, err
    then, now = json.loads(shop.directory.joinpath("report.json").read_text()), json.loads(out)
    assert now["anatomy"] == then["anatomy"]
    assert [check["outcome"] for check in now["checks"]] == [check["outcome"] for check in then["checks"]]
    assert list((shop.directory / "tmp").glob("perfdoctor*")) == []
    code, _, err = shop.run("report", run.rpartition("/")[0])
    assert code == 2
    assert f"the latest is {run}" in err


def _steps(objects: Mapping[str, bytes]) -> int:
    """How many steps lie in the bucket."""
    lines = [line for key, data in objects.items() if "/process-" in key for line in data.splitlines()]
    return sum(json.loads(line)["n"] for line in lines if line.startswith(b'{"k":"steps"') and line.endswith(b"}"))


def test_a_node_that_dies_loses_at_most_what_came_since_the_last_upload(shop: Shop) -> None:
    (shop.directory / "perfdoctor.toml").write_text(f'runs = "s3://{BUCKET}/died"\nupload-every = 0.5\n')
    process = shop.start("check", "--to-end", "train.py", "100000", "until")
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while _steps(shop.objects(prefix="died/")) < 100:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "nothing was uploaded"
            time.sleep(0.2)
        assert _judged_steps(shop, "died") >= 100, "while the job runs"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert _judged_steps(shop, "died") >= 100, "after its node died"


def _judged_steps(shop: Shop, prefix: str) -> int:
    """How many steps a report of the bucket's recording has seen."""
    code, out, err = shop.run("report", shop.run_of(prefix), "--fail-on", "never", "--output", "json")
    assert code == 0, err
    anatomy = json.loads(out)["anatomy"]
    return sum(anatomy[name] for name in ("count", "warmup", "windowed", "irregular"))


@pytest.mark.parametrize(
    ("bucket", "env", "why"),
    [
        ("no-such-bucket", {}, "bucket does not exist"),
        (BUCKET, {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "credentials"),
    ],
)
def test_storage_that_refuses_writes_starts_no_job(
    shop: Shop, bucket: str, env: Mapping[str, str | None], why: str
) -> None:
    code, _, err = shop.run("check", "--runs", f"s3://{bucket}/refused", "train.py", "10", "until", env=env)
    assert code == 2
    assert f"cannot write to s3://{bucket}/refused: " in err
    assert why in err
    assert "[storage]" in err
    assert not (shop.directory / "begun").exists()
    assert list((shop.directory / "tmp").glob("perfdoctor*")) == []
    assert [one["Name"] for one in shop.client.list_buckets()["Buckets"]] == [BUCKET]


def test_storage_that_goes_away_in_the_middle_leaves_the_local_copy(shop: Shop) -> None:
    shop.client.create_bucket(Bucket="short-lived")
    process = shop.start("check", "--to-end", "--runs", "s3://short-lived", "train.py", "100000", "until")
    deadline = time.monotonic() + TIMEOUT_S
    while not (shop.directory / "begun").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for key in shop.objects("short-lived"):
        shop.client.delete_object(Bucket="short-lived", Key=key)
    shop.client.delete_bucket(Bucket="short-lived")
    (shop.directory / "until").touch()
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 4, err
    assert "not all of the recording could be uploaded: cannot write to s3://short-lived: " in err
    (kept,) = re.findall(r"It is kept: perfdoctor report (\S+)$", err, re.MULTILINE)
    assert Path(kept).is_relative_to(shop.directory / "tmp")
    code, _, err = shop.run("report", kept)
    assert code == 4, err


def test_the_node_with_rank_0_reports_on_what_all_nodes_have_uploaded(shop: Shop) -> None:
    job = Path(__file__).parent.parent / "jobs" / "ddp_on_nodes.py"
    meeting = ("--master-addr", "127.0.0.1", "--master-port", str(free_port()))
    nodes = []
    for number in range(2):
        agent = ("-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number), *meeting)
        options = ("--to-end", "--runs", f"s3://{BUCKET}/nodes", "--output", "json:report.json")
        nodes.append(shop.start("check", *options, "--", sys.executable, *agent, str(job), "80", "1"))
    try:
        (_, first), (_, second) = [node.communicate(timeout=TIMEOUT_S) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
    report = json.loads((shop.directory / "report.json").read_text())
    assert nodes[1].returncode == 0, second
    assert f"the node with rank 0 reports on the whole job, later: perfdoctor report s3://{BUCKET}/nodes/2" in second
    assert "cannot be fetched" not in first
    assert [node["ranks"] for node in report["environment"]["job"]["nodes"]] == [[0], [1]]
    assert report["environment"]["rank"] == 1, "the late one"
    assert [note for note in report["integrity"]["notes"] if note["code"] == "PD95"] == []
    assert len({key.split("/")[1] for key in shop.objects(prefix="nodes/2")}) == 2, "copies are not uploaded again"
    assert list((shop.directory / "tmp").glob("perfdoctor*")) == []
