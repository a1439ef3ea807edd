"""Tables of a run from archives, and comparison of two archives."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from schemas.errors import UserError
from tests.errors import raises
from workloads.cosbench.archive import read_archive
from workloads.cosbench.tables import compare, latencies, summaries

REAL = Path(__file__).parents[2] / "data" / "cosbench" / "real"
SERIES = "second,stage,op,tenant,ops,bytes,errors,mean_s,p95_s,work,measured\n"


def operation(name: str, buckets: list[list[int]], **changes: object) -> dict[str, object]:
    count = sum(bucket[2] for bucket in buckets)
    return {
        **{"work": "main", "operation": name, "type": name, "window_begin_s": 2.0},
        **{"window_end_s": 32.0, "ops": count, "bytes": 5, "errors": {}, "throughput_s": 1.5},
        **{"bandwidth_bytes_s": 2.5, "mean_s": 0.1, "max_s": 0.2, "buckets": buckets},
        **changes,
    }


@pytest.fixture
def driven(tmp_path: Path) -> Path:
    """Return the recorded run with cosdrive's additional files."""
    folder = Path(shutil.copytree(REAL / "w1-mos-A", tmp_path / "w1-mos-A"))
    read = operation("read", [[0, 1000, 98], [1000, 2000, 2]], errors={"timeout": 3, "server": 1})
    write = operation("write", [], mean_s=None, max_s=None)
    stage = {"stage": "s3-main", "state": "completed", "started_unix_s": 1010.25}
    stage["operations"] = [read, write]
    document = {"state": "finished", "started_unix_s": 1000.0, "stopped_unix_s": 1050.0, "seed": 7}
    document |= {"rate_s": 20, "arrivals": "poisson", "stages": [stage]}
    (folder / "histograms.json").write_text(json.dumps(document))
    (folder / "series.csv").write_text(
        SERIES + "3,s2-prepare,prepare-write,mos-A,9,90,0,0.5,0.6,prepare,true\n"
        "11,s3-main,read,mos-A,50,100,0,0.010,0.020,main,false\n"
        "12,s3-main,read,mos-A,60,2000000,1,0.010,0.020,main,true\n"
        "12,s3-main,write,mos-A,20,1000000,0,0.050,0.060,main,true\n"
        "13,s3-main,read,mos-A,0,0,4,,,main,true\n"
    )
    return folder


def test_files_of_cosdrive(driven: Path) -> None:
    archive = read_archive(driven)
    assert archive.driver is not None
    assert (archive.driver.seed, archive.driver.rate, archive.driver.arrivals) == (7, 20, "poisson")
    read, write = archive.measured
    assert (read.operations, dict(read.failed)) == (100, {"timeout": 3, "server": 1})
    assert (read.quantile_s(0.5), read.quantile_s(0.99)) == (1e-6, 2e-6)
    assert (write.mean_s, write.quantile_s(0.5)) == (None, None)
    assert len(archive.seconds) == 5
    assert archive.unread == ()


def test_latencies(driven: Path) -> None:
    found = latencies(read_archive(driven), 1000.0)
    assert found.to_dict("records") == [
        {"t_s": 12.25, "op": "read", "tenant": "mos-A", "node": "client", "low_ns": low}
        | {"high_ns": high, "count": count}
        for low, high, count in ((0, 1000, 98), (1000, 2000, 2))
    ]
    assert str(found["high_ns"].dtype) == "int64"


def test_summaries(driven: Path) -> None:
    read, *_ = summaries(read_archive(driven))
    assert (read.iops, read.latency_mean_s, read.latency_max_s) == (200.06, 0.1, 0.2)
    assert (read.latency_p50_s, read.latency_p99_s, read.errors) == (1e-6, 2e-6, 4)
    (plain, *_) = summaries(read_archive(REAL, "w1"))
    assert (plain.latency_mean_s, plain.latency_max_s, plain.errors) == (0.03224, 0.14, 0)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("histograms.json", "{", "histograms.json"),
        ("histograms.json", "{}", "stages"),
        ("series.csv", "second,stage\n", "line 1, column 3"),
        ("series.csv", SERIES + "1,s,r,t,x,0,0,,,m,true\n", "line 2, column 5"),
        ("series.csv", SERIES + "1,s,r,t,0,0,0,,,m,yes\n", "'yes'"),
    ],
)
def test_damaged_files_of_cosdrive(driven: Path, file: str, text: str, says: str) -> None:
    (driven / file).write_text(text)
    with raises(UserError, says):
        read_archive(driven)


def test_differences() -> None:
    first, second = read_archive(REAL, "w1"), read_archive(REAL, "w8")
    itself = compare(first, first)
    assert itself.same_shape
    assert all(one.same for one in itself.differences)
    assert len(itself.differences) == 7 * 13
    found = compare(first, second, main_only=True)
    assert not found.same_shape
    assert found.only_first == ("main/delete",)
    assert found.unlike == ("main/read: 8 workers, 4 workers", "main/write: 8 workers, 4 workers")
    by_name = {(one.op, one.metric): one for one in found.differences}
    operations = by_name["read", "operations"]
    assert (operations.first, operations.second) == (5990, 181)
    assert operations.change == pytest.approx((181 - 5990) / 5990)
    assert not operations.same
    # A difference of one 10 ms bucket does not count, two buckets do.
    assert by_name["read", "p100_s"].same
    assert not by_name["read", "p60_s"].same
    assert "main/delete" in compare(second, first).only_second
