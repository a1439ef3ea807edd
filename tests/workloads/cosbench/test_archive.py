"""Archives from the real COSBench 0.4.2, and reports of damaged archives."""

from __future__ import annotations

import math
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from schemas.names import UnsafeNameError
from tests.errors import raises
from workloads.cosbench import archive as archive_module
from workloads.cosbench.archive import (
    FOREVER_NS,
    RESULTS,
    Archive,
    CosbenchStage,
    Failures,
    OperationResult,
    failures_of,
    folders,
    quantile_s,
    read_archive,
)

REAL = Path(__file__).parents[2] / "data" / "cosbench" / "real"
MS = 1_000_000


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the recorded archive, to damage it."""
    return Path(shutil.copytree(REAL, tmp_path / "archive"))


def stage_of(archive: Archive, name: str) -> CosbenchStage:
    return next(stage for stage in archive.stages if stage.name == name)


def result_of(stage: CosbenchStage, op: str) -> OperationResult:
    return next(result for result in stage.results if result.op == op)


def damage(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_results_of_a_real_run() -> None:
    archive = read_archive(REAL, "w1")
    assert (archive.id, archive.name, archive.finished) == ("w1", "mos-A", True)
    assert [stage.name for stage in archive.stages] == [
        *("init", "prepare", "main", "cleanup", "dispose")
    ]
    (main,) = archive.main
    read = result_of(main, "read")
    assert (read.operations, read.bytes, read.workers, read.failures) == (
        *(5990, 394434000, 8),
        Failures(0, 0, 0),
    )
    assert (read.mean_s, read.processing_s) == (0.03224, 0.03215)
    assert read.percentiles_s == {60: 0.04, 80: 0.05, 90: 0.05, 95: 0.06, 99: 0.08, 100: 0.14}
    assert (read.operations_s, read.bytes_s, read.success) == (200.06, 13173388.96, 1.0)
    assert [moment.state for moment in main.history] == [
        *("waiting", "booting", "submitting", "authing", "launching", "running", "closing"),
        "completed",
    ]
    assert main.at("running") == datetime(2026, 11, 21, 5, 30, 4)
    assert archive.unread == ()
    series = result_of(main, "delete").series
    assert [point.t_s for point in series] == [7, 12, 17, 22, 27, 32, 37]
    assert [point.operations for point in series] == [56, 59, 69, 52, 65, 60, 15]
    first = result_of(main, "write").series[0]
    assert (first.bytes, first.mean_s, first.processing_s) == (4531000, 0.06799, 0.06787)
    assert (first.operations_s, first.bytes_s, first.success) == (13.36, 903644.48, 1.0)
    init = result_of(stage_of(archive, "init"), "init-write")
    assert (init.operations, init.bytes) == (0, 0)
    assert (init.mean_s, init.processing_s, init.success, init.failures) == (None,) * 4
    assert set(init.percentiles_s.values()) == {None}
    assert init.series[0].mean_s is None


def test_the_histogram_agrees_with_the_results() -> None:
    """Buckets add up to the counts and give exactly COSBench's printed percentiles."""
    for name in ("w1", "w8"):
        for stage in read_archive(REAL, name).main:
            for result in stage.results:
                assert sum(count for _, _, count in result.buckets) == result.operations
                for percent, value in result.percentiles_s.items():
                    # COSBench uses the first bucket at which int(n * p) operations are reached.
                    share = (int(result.operations * percent / 100) - 0.5) / result.operations
                    assert quantile_s(result.buckets, share) == value


def test_two_results_of_s3_alone_and_with_files_of_others(copy: Path) -> None:
    folder = copy / "w8-s3u"
    for name in ("notes.txt", "workload.log"):
        (folder / name).write_text("x")
    archive = read_archive(folder.rename(copy.parent / "elsewhere"))
    assert (archive.id, archive.name, archive.unread) == ("w8", "s3u", ("notes.txt",))
    (main,) = archive.main
    assert [result.op for result in main.results] == ["read", "write"]
    assert result_of(main, "read").workers is None
    assert result_of(main, "write").buckets[0] == (40 * MS, 50 * MS, 1)
    assert archive.config is not None
    assert "secretkey=***" in archive.config
    assert "testing" not in archive.config


def test_one_of_many_has_to_be_named() -> None:
    assert list(folders(REAL)) == ["w1-mos-A", "w8-s3u"]
    with raises(UserError, "holds 2 workloads", "w8", allowed="w1"):
        read_archive(REAL)
    with raises(UserError, "holds 0 workloads 'w5'"):
        read_archive(REAL, "w5")
    with raises(UserError, "holds no archive"):
        read_archive(REAL.parent / "real" / ".." / ".." / "journals")
    with raises(UserError, "is no folder"):
        read_archive(REAL / "run-history.csv")


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("w1-mos-A.csv", "394434000", "39443x000", "line 4, column 5"),
        ("w1-mos-A.csv", "100%,completed", "100,completed", "column 16"),
        ("w1-mos-A.csv", "Op-Type", "Kind", "line 1, column 3"),
        ("w1-mos-A.csv", "waiting @ 2026-11-21", "waiting @ 2026-13-21", "2026-13-21 05:29:50"),
        ("w1-mos-A.csv", None, b"\xff\xfe\x00", "cannot be read as CSV"),
        ("s3-main.csv", "1103", "many", "s3-main.csv"),
        ("s3-main.csv", "05:30:16", "25:30:16", "line 4, column 1"),
        ("w1-mos-A-rt-histogram.csv", "10~20", "10-20", "line 3, column 1"),
        ("w1-mos-A-rt-histogram.csv", "s3-main-w1-main-read", "s9-x-w1-main-read", "no operation"),
    ],
)
def test_a_damaged_file_is_named_with_line_and_column(
    copy: Path, file: str, old: str | None, new: Any, says: str
) -> None:
    path = copy / "w1-mos-A" / file
    path.write_bytes(new) if old is None else damage(path, old, new)
    with raises(UserError, file, says) as caught:
        read_archive(copy, "w1")
    assert "\n" not in str(caught.value)


def test_stages_without_operations(copy: Path) -> None:
    """A delay, or a stage not reached by a cancelled workload, has N/A in its line. Such stages may
    share a name, and their series are empty without a warning. Releases write 14 or 15 N/A."""
    path = copy / "w1-mos-A" / "w1-mos-A.csv"
    whole = path.read_text()
    rest = ",".join(["N/A"] * 14)
    (path.parent / "pause.csv").write_text("")
    end = "waiting @ 2026-11-21 05:29:50\n"
    path.write_text(whole + f"pause,{rest},completed,{end}")
    assert read_archive(copy, "w1").warnings == ()
    path.write_text(whole + f"pause,{rest},completed,{end}pause,{rest},N/A,aborted,{end}")
    archive = read_archive(copy, "w1")
    assert [stage.status for stage in archive.stages[-2:]] == ["completed", "aborted"]
    assert (archive.stages[-1].results, archive.finished) == ((), False)
    assert [moment.state for moment in archive.stages[-1].history] == ["waiting"]
    assert [stage.name for stage in archive.main] == ["main"]


def test_a_stage_names_no_file_outside_the_archive(copy: Path) -> None:
    results = copy / "w1-mos-A" / "w1-mos-A.csv"
    results.write_text(results.read_text().replace("s3-main", "../../s3-main"))
    (results.parent / "w1-mos-A-rt-histogram.csv").unlink()
    (copy.parent / "s3-main.csv").write_text("not of this archive\n")
    with pytest.raises(UnsafeNameError):
        read_archive(copy, "w1")


def test_a_series_over_midnight(tmp_path: Path) -> None:
    head = "Timestamp,Op-Count,Byte-Count,Avg-ResTime,Avg-ProcTime,Throughput,Bandwidth,Succ-Ratio"
    rows = [f"{time},1,2,3,N/A,5,6,50%" for time in ("23:59:55", "00:00:00", "00:00:05")]
    path = tmp_path / "s1-main.csv"
    path.write_text("\n".join([head, "," + ",".join(["read"] * 7), *rows]))
    begun = datetime(2026, 11, 21, 23, 59, 56)
    (points,) = archive_module.series(path, begun).values()
    # The driver's clock was a second behind the controller's.
    assert [point.t_s for point in points] == [0, 4, 9]
    assert (points[0].mean_s, points[0].processing_s, points[0].success) == (0.003, None, 0.5)
    late = archive_module.series(path, begun - timedelta(seconds=20))
    assert [point.t_s for point in late["read", 1]] == [19, 24, 29]


def test_names_with_dashes_and_two_of_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "w1-x-rt-histogram.csv"
    names = ["s1-a-b-w1-c-read", "s1-a-b-w2-d-read", "s1-a-w1-b-w2-read"]
    path.write_text(
        f"ResTime,{',(%),'.join(names)},(%)\n0~10,1,1%,2,1%,0,0%\n500000~+INF,0,1%,0,1%,3,9%\n"
    )
    found = archive_module.histograms(path, [("s1-a-b", "read"), ("s1-a", "read")])
    assert found == {
        ("s1-a-b", "read", 1): ((0, 10 * MS, 1),),
        ("s1-a-b", "read", 2): ((0, 10 * MS, 2),),
        ("s1-a", "read", 1): ((500_000 * MS, FOREVER_NS, 3),),
    }
    assert quantile_s((), 0.5) is None


GROUPS = ("Op-Count", "Byte-Count", "Avg-ResTime", "Avg-ProcTime", "Throughput", "Bandwidth")
SERIES = (
    "Timestamp," + ",,".join((*GROUPS, "Succ-Ratio")) + ",,Version-Info,,\n," + "read,write," * 7
)
SERIES += "Min-Version,Version,Max-Version\n10:00:06,10,9,8,7,5,5,5,5,1,1,8,7,100%,90%,0,0,0\n"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """Write a stage of reads and writes, with a series of one line."""
    numbers = "{op},{op},10,1000,5,5,10,10,10,10,10,20,1,100,99.5%,completed"
    states = ("waiting", "running", "completed")
    history = ",".join(f"{state} @ 2018-03-13 10:00:0{n}" for n, state in enumerate(states))
    rows = [f"s1-main,{numbers.format(op=op)},{history}" for op in ("read", "write")]
    folder = tmp_path / "w1-x"
    folder.mkdir()
    (folder / "w1-x.csv").write_text("\n".join([",".join(RESULTS), *rows]) + "\n")
    (folder / "s1-main.csv").write_text(SERIES)
    return folder


def test_an_interval_in_which_nothing_ended_has_one_metric_for_all_operations(made: Path) -> None:
    path = made / "s1-main.csv"
    path.write_text(
        SERIES + "10:00:11,0,0,N/A,N/A,0,0,N/A,1,1,1\n10:00:16" + ",1" * 12 + ",1%,2%,2,2,2\n"
    )
    (stage,) = read_archive(made).stages
    for op, count in (("read", 10), ("write", 9)):
        first, idle, last = result_of(stage, op).series
        assert (first.operations, idle.operations, last.operations) == (count, 0, 1)
        assert (idle.t_s, idle.mean_s, idle.operations_s, idle.success) == (10, None, 0.0, None)
    path.write_text(SERIES + "10:00:11,3,9,1,1,1,1,100%,1,1,1\n")  # which operation has three?
    with raises(UserError, where="line 4"):
        read_archive(made)


def test_a_stage_that_failed_before_it_was_completed_has_failed(made: Path) -> None:
    assert read_archive(made).finished
    damage(made / "w1-x.csv", "completed @", "failed @ 2018-03-13 10:00:01,completed @")
    archive = read_archive(made)
    assert (archive.stages[0].status, archive.finished) == ("failed", False)


def test_a_response_beyond_the_last_bucket(made: Path) -> None:
    damage(made / "w1-x.csv", "10,10,20,1", f"10,10,{FOREVER_NS},1")
    read, write = read_archive(made).stages[0].results
    assert (read.percentiles_s[100], write.percentiles_s[100]) == (math.inf, 0.02)


def test_an_empty_series_or_histogram_leaves_the_rest_readable(made: Path) -> None:
    (made / "s1-main.csv").write_text(SERIES.partition("10:00")[0])
    (made / "w1-x-rt-histogram.csv").write_text("")
    archive = read_archive(made)
    assert len(archive.warnings) == 2
    result = result_of(archive.stages[0], "read")
    assert (result.operations, result.series, result.buckets) == (10, (), ())


@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("w1-x.csv", ",1,100,99.5%", ",1,25,100,7,99,5%", 2),
        ("s1-main.csv", ",5,5,5,5,", ",5,1,5,5,5,", 3),
        ("w1-x-rt-histogram.csv", "3,30%", "3,33,33%", 2),
    ],
)
def test_a_decimal_comma_is_named(made: Path, name: str, old: str, new: str, line: int) -> None:
    """With a German locale Java writes 5,25 for 5.25, without quotes."""
    heading = "ResTime,s1-main-w1-main-read,(%),s1-main-w1-main-write,(%)\n"
    (made / "w1-x-rt-histogram.csv").write_text(heading + "0~10,3,30%,10,100%\n")
    read_archive(made)
    damage(made / name, old, new)
    with raises(UserError, where=f"{name}, line {line}"):
        read_archive(made)


@given(n=st.integers(1, 10**7), failed=st.integers(0, 10**7))
def test_failures_lie_between_the_bounds_that_a_percentage_allows(n: int, failed: int) -> None:
    share = round(n / (n + failed) * 1e4) / 1e4
    found = failures_of(n, share)
    assert (found is None) == (share == 0)
    if found is not None:
        assert found.least <= failed <= found.most
        assert found.least <= found.likely <= found.most
    assert failures_of(995, 0.995) == Failures(5, 5, 5)
    assert failures_of(10**6, 0.99) == Failures(10101, 10050, 10152)
    assert failures_of(0, None) is None
