"""Parser of rados bench, on recorded output of 16.2.15 and on samples after other versions' source
(src/common/obj_bencher.cc), marked as derived."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.errors import raises
from workloads.errors import WorkloadError
from workloads.rados_output import RadosSample, parse_rados_bench, samples

RADOS = Path(__file__).parents[1] / "data" / "rados-bench"
DATA = RADOS / "16.2.15"


def read(name: str) -> str:
    return (DATA / name).read_text()


def test_totals_and_rows_are_those_printed() -> None:
    output = parse_rados_bench(read("write-64k.txt"))
    assert output.complete
    assert (output.seconds, output.operations, output.op_size) == (12.0008, 17987, 65536)
    assert output.latency_mean_s == pytest.approx(0.00266667)
    assert output.latency_sd_s == pytest.approx(0.000819356)
    assert output.latency_max_s == pytest.approx(0.0110549)
    assert output.latency_min_s == pytest.approx(0.000592242)
    output = parse_rados_bench(read("rand-64k.txt"))
    assert output.latency_sd_s is None
    assert output.latency_max_s == pytest.approx(0.00428399)
    assert samples(output)[0].throughput_mb_s == pytest.approx(418.75 * 2**20 / 1e6)
    # The header that comes again after 20 seconds is no row.
    assert [row.second for row in output.rows] == list(range(24))
    assert parse_rados_bench(read("write-64k-cleanup.txt")).operations == 3293
    output = parse_rados_bench(read("rand-4m-log-lines.txt"))
    assert [row.finished for row in output.rows] == [0, 376, 1094, 1701]
    assert output.operations == 1717


def counts(series: list[RadosSample]) -> list[float]:
    """Return the operations of each sample."""
    ends = [0.0, *(sample.t_s for sample in series)]
    return [s.iops * (end - start) for s, (start, end) in zip(series, pairwise(ends), strict=True)]


RECORDED = sorted(
    str(path.relative_to(RADOS))
    for path in RADOS.glob("*/*.*")
    if "terminated" not in path.name and path.suffix != ".err"
)


@pytest.mark.parametrize("name", RECORDED)
def test_series_adds_up_to_the_total(name: str) -> None:
    output = parse_rados_bench((RADOS / name).read_text())
    series = samples(output)
    assert sum(counts(series)) == pytest.approx(output.operations)
    assert series[-1].t_s == pytest.approx(output.seconds)
    total = sum((s.latency_s or 0.0) * n for s, n in zip(series, counts(series), strict=True))
    # Output has six digits: the last second's share of the error grows with the run.
    assert total / output.operations == pytest.approx(output.latency_mean_s, rel=1e-4)


SLOW = """hints = 1
Maintaining 6 concurrent writes of 4194304 bytes \
to objects of size 4194304 for up to 2 seconds or 0 objects
    0       0         0         0         0         0           -           0
    1       6        10         4        16        16         0.9         0.8
    2       6        17        11        22        28         0.9         0.9
Total time run:         {seconds}
Total writes made:      {operations}
"""


@pytest.mark.parametrize("seconds", [1.99, 2.0, 2.3, 2.9])
def test_a_slow_bench_keeps_what_ended_after_its_last_line(seconds: float) -> None:
    """A third of the operations end after the last line, which the clock may even place later."""
    output = parse_rados_bench(SLOW.format(seconds=seconds, operations=17))
    assert sum(counts(samples(output))) == pytest.approx(17)
    assert len(samples(output)) == (3 if seconds == 2.9 else 2)
    assert samples(output)[-1].latency_s is None  # the mean was not printed
    with pytest.raises(WorkloadError):  # a total below the last line
        samples(parse_rados_bench(SLOW.format(seconds=seconds, operations=10)))
    cut = parse_rados_bench(SLOW.partition("Total")[0])
    assert (cut.complete, cut.op_size, counts(samples(cut))) == (False, 4194304, [4, 7])


def test_a_stall_shows_as_empty_seconds_and_is_not_counted_twice() -> None:
    output = parse_rados_bench(read("rand-4m-stall.txt"))
    series = samples(output)
    assert [sample.iops for sample in series][4:6] == [0.0, 0.0]
    assert [sample.latency_s for sample in series][4:6] == [None, None]
    # The tool itself prints 568 MB/s for the second with 426 finished objects of 4 MiB.
    assert series[6].iops == pytest.approx(426 / 1.0034, rel=1e-3)
    assert output.started_wall == pytest.approx(1795248148.301722)
    assert series[6].t_s == pytest.approx(7.005045)


@pytest.mark.parametrize("hours", [2, -2])
def test_a_clock_that_is_set_meanwhile_moves_no_row(hours: int) -> None:
    lines = read("rand-4m-stall.txt").splitlines(keepends=True)
    for number in range(8, len(lines)):
        stamp, blank, rest = lines[number].partition(" ")
        with suppress(ValueError):
            stamp = (datetime.fromisoformat(stamp) + timedelta(hours=hours)).isoformat()
            lines[number] = stamp + blank + rest
    rows = parse_rados_bench("".join(lines)).rows
    unmoved = parse_rados_bench(read("rand-4m-stall.txt")).rows
    assert [row.finished for row in rows] == [row.finished for row in unmoved]
    drift = [row.wall - other.wall for row, other in zip(rows, unmoved, strict=True)]  # type: ignore[operator]
    assert max(map(abs, drift)) < 0.1


def test_a_terminated_bench_keeps_its_rows_but_has_no_totals() -> None:
    output = parse_rados_bench(read("rand-4m-terminated.txt"))
    assert not output.complete
    assert len(samples(output, op_size=4194304)) == 3
    with raises(WorkloadError, "operation size"):
        samples(output)


def test_no_metadata_is_an_error_with_the_reason() -> None:
    with raises(WorkloadError, "did not run: error 2"):
        parse_rados_bench(read("no-metadata.err"))
    with raises(WorkloadError, "no output"):
        parse_rados_bench("hints = 1\n")
