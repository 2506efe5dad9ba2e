"""What Nsight Systems exports to SQLite, by a database with its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perfdoctor.errors import PerfdoctorError
from perfdoctor.traces.model import NOT_SAID, Kind, Trace
from perfdoctor.traces.reader import read

PROCESS, THREAD, OTHER = 4242, 4250, 777
HARDWARE = 1 << 48
GLOBAL_PID = HARDWARE | PROCESS << 24
GLOBAL_TID = GLOBAL_PID | THREAD
SECOND = 1_000_000_000

SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, smCount INTEGER, busLocation TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER, value INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
    correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
"""
STRINGS = {
    1: "cudaLaunchKernel_v7000",
    2: "cudaMemcpyAsync_v3020",
    3: "void gemm<float>(int)",
    4: "gemm",
    5: "validation",
}


def exported(path: Path, *changes: str) -> Path:
    """A database; `changes` are statements that make it another."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", STRINGS.items())
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100', 42505273344, 108, '0000:07:00.0')")

        def insert(table: str, *rows: tuple[object, ...]) -> None:
            marks = ", ".join("?" * len(rows[0]))
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

        at = SECOND
        insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            (at + 10_000, at + 15_000, 0, GLOBAL_TID, 31, 1, 0),
            (at + 20_000, at + 21_500, 0, GLOBAL_TID, 32, 2, 0),
        )
        kernel = (0, 7, 31, GLOBAL_PID, 3, 4)
        insert(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            (at + 18_000, at + 58_000, *kernel),
            (at + 18_000, at + 58_000, 0, 7, 31, OTHER << 24, 3, 4),
        )
        insert("CUPTI_ACTIVITY_KIND_MEMCPY", (at + 60_000, at + 61_000, 0, 7, 32, GLOBAL_PID, 4096, 1, 0, 2))
        insert("CUPTI_ACTIVITY_KIND_MEMSET", (at + 62_000, at + 62_500, 0, 7, 33, GLOBAL_PID, 64, 0))
        insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (at + 63_000, at + 64_000, 0, 7, 34, GLOBAL_PID, 1))
        insert(
            "NVTX_EVENTS",
            (at, at + 90_000, 59, "ProfilerStep#3", None, GLOBAL_TID),
            (at + 5_000, at + 17_000, 59, "aten::mm, seq = 12, op_id = 3, sizes = [[64, 256], [256, 512], []]", None,
             GLOBAL_TID),
            (at + 6_000, at + 16_000, 59, "MmBackward0, seq = 12, stashed tid = 1", None, GLOBAL_TID),
            (at + 7_000, at + 8_000, 60, None, 5, GLOBAL_TID),
            (at + 7_500, at + 7_600, 59, "cub::DeviceReduce::Sum", None, GLOBAL_TID),
            (at + 8_000, None, 59, "never ends", None, GLOBAL_TID),
            (at + 8_000, at + 9_000, 34, "a mark without length", None, GLOBAL_TID),
        )  # fmt: skip
        for change in changes:
            database.execute(change)
    return path


def names(trace: Trace, table: str) -> list[str]:
    return [trace.named(int(index)) for index in getattr(trace, table).name]


def test_an_export_is_read(tmp_path: Path) -> None:
    trace = read(exported(tmp_path / "report.sqlite"))
    assert (trace.writer, trace.platform, trace.rank, trace.cut, trace.with_shapes) == (
        "nsys",
        "cuda",
        None,
        False,
        True,
    )
    (device,) = trace.devices
    assert (device.name, device.memory_bytes, device.multiprocessors) == ("NVIDIA A100", 42505273344, 108)
    assert names(trace, "calls") == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert trace.calls.start_us.round(3).tolist() == [10, 20]
    assert trace.calls.thread.tolist() == [THREAD] * 2
    work = trace.work
    assert names(trace, "work") == [
        "void gemm<float>(int)",
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
        "CUDA graph",
    ]
    assert work.kind.tolist() == [Kind.KERNEL, Kind.COPY, Kind.SET, Kind.KERNEL]
    assert work.call.tolist() == [0, 1, NOT_SAID, NOT_SAID]
    assert (work.end_us - work.start_us).round(3).tolist() == [40, 1, 0.5, 1]
    assert work.bytes.tolist() == [NOT_SAID, 4096, 64, NOT_SAID]


def test_ranges_of_pytorch_are_operators_and_others_marks(tmp_path: Path) -> None:
    trace = read(exported(tmp_path / "report.sqlite"))
    assert names(trace, "operators") == ["aten::mm", "MmBackward0"]
    assert trace.operators.sequence.tolist() == [12, 12]
    assert trace.named(trace.operators.shapes[0]) == "[64, 256] [256, 512]"
    assert names(trace, "marks") == ["ProfilerStep#3", "validation", "cub::DeviceReduce::Sum"]


def test_one_trace_is_one_process_and_others_are_told(tmp_path: Path) -> None:
    trace = read(exported(tmp_path / "report.sqlite"))
    assert len(trace.work) == 4
    assert trace.problems == ("left out: 1 other process, since one trace is one process",)


def test_without_a_device_the_ranges_remain(tmp_path: Path) -> None:
    gone = ["RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"]
    changes = [f"DROP TABLE CUPTI_ACTIVITY_KIND_{table}" for table in gone]
    trace = read(exported(tmp_path / "report.sqlite", *changes, "DROP TABLE TARGET_INFO_GPU", "DROP TABLE StringIds"))
    assert (trace.platform, trace.devices, trace.problems) == ("", (), ())
    assert (len(trace.operators), len(trace.marks), len(trace.work)) == (2, 3, 0)


def test_reading_leaves_the_file_and_its_folder_as_they_were(tmp_path: Path) -> None:
    path = exported(tmp_path / "report #1?.sqlite")
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_odd_values_are_read_around(tmp_path: Path) -> None:
    trace = read(
        exported(
            tmp_path / "report.sqlite",
            "UPDATE StringIds SET value = CAST(x'ff41' AS TEXT) WHERE id = 3",
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = 'x', correlationId = NULL WHERE correlationId = 31",
            "UPDATE CUPTI_ACTIVITY_KIND_MEMSET SET end = start - 5",
        )
    )
    assert names(trace, "work") == ["�A", "Memcpy HtoD (Pageable -> Device)", "CUDA graph"]
    assert names(trace, "calls")[0] == ""
    assert "left out: 1 event of negative length" in trace.problems


def refused(path: Path) -> str:
    with pytest.raises(PerfdoctorError) as error:
        read(path)
    assert error.value.advice
    return error.value.slug


def test_other_databases_are_refused_with_advice(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE runs (id INTEGER)")
    assert refused(other) == "not-an-nsys-export"
    empty = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{t}" for t in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
    assert refused(exported(tmp_path / "empty.sqlite", *empty, "DELETE FROM NVTX_EVENTS")) == "trace-without-events"
    older = exported(tmp_path / "older.sqlite", "ALTER TABLE NVTX_EVENTS DROP COLUMN textId")
    assert refused(older) == "trace-damaged-database"
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"NSYS\0\1")
    assert refused(report) == "trace-nsys-report"


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b[:200] + b"\xff" * 3000 + b[3200:]])
def test_a_damaged_database_is_refused_or_read(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = exported(tmp_path / "report.sqlite")
    path.write_bytes(damage(path.read_bytes()))
    assert refused(path) == "trace-damaged-database"
