"""Trace loaders on excerpts in each format, on all kinds of damage, and fuzzed."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import UserError
from tests.errors import raises
from workloads.traces.formats import FORMATS
from workloads.traces.reader import TraceReader, load
from workloads.traces.requests import RequestBlock, save

PLAIN = "100,0x00001000,DiskWrite\n250,0x200,DiskRead\n\n900,ff,DiskRead\n"

# Columns as in an older and a newer file; times, pointers and names are made up.
DATA = Path(__file__).resolve().parents[2] / "data" / "traces"
OLD = (DATA / "microsoft-old.csv").read_text()
NEW = (DATA / "microsoft-new.csv").read_text()


def written(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(block: RequestBlock) -> list[tuple[int, int, bool, int]]:
    columns = (block.time_ns, block.size, block.read, block.offset)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_plain(tmp_path: Path) -> None:
    block, report = load(written(tmp_path, PLAIN))
    assert rows(block) == [(100, 4096, False, -1), (250, 512, True, -1), (900, 255, True, -1)]
    assert (report.format, report.lines, report.requests, report.malformed) == ("plain", 4, 3, 0)
    assert report.sentence(tmp_path) == ""
    block, report = load(written(tmp_path, "# made by hand\n" + PLAIN))
    assert (len(block), report.malformed) == (3, 0)
    with raises(UserError, "cannot be read"):
        load(tmp_path / "none.csv")


def test_gzip_is_recognised_by_its_bytes_and_damage_is_an_error(tmp_path: Path) -> None:
    packed = gzip.compress(PLAIN.encode())
    assert len(load(written(tmp_path, packed, "trace.csv"))[0]) == 3
    for damaged in (packed[:-9], packed[:20] + b"\xff\xff" + packed[22:]):
        path = written(tmp_path, damaged)
        with raises(UserError, "gzip", where=str(path)):
            load(path)


def test_microsoft_maps_columns_by_the_header(tmp_path: Path) -> None:
    block, report = load(written(tmp_path, OLD))
    # Arrival is TimeStamp minus ElapsedTime; the Init row announces the same request.
    assert rows(block) == [
        (1_000_000, 4096, True, 0x1B0130000),
        (5_400_000, 8192, False, 4096),
    ]
    assert report.format == "microsoft"
    block, _ = load(written(tmp_path, NEW))
    assert rows(block) == [((8612 - 283) * 1000, 4096, True, 0x18F0B8000)]
    # A row without a header for its event is malformed.
    text = NEW + "DiskWrite, 9000, a (1), 1, 1, 0x1, 0x0, 0x1000, 1, 0\n"
    _, report = load(written(tmp_path, text))
    assert report.malformed == 1
    assert "columns of DiskWrite" in report.examples[0][1]
    block, _ = load(written(tmp_path, OLD), completion=True, disk=0)
    assert rows(block) == [(5_000_000, 4096, True, 0x1B0130000)]


# Rows follow the publishers' descriptions; times and places are made up. Expected values are (ns
# from the first row, bytes, read, offset in bytes), computed manually.
PUBLIC = {
    "msr": (
        "timestamp,datetime,hostname,disk_number,type,offset,size,response_time\n"
        "128166372010000000,2010-08-13 07:06:41.000000,hm,1,Read,383496192,32768,113736\n"
        "128166372012500001,2010-08-13 07:06:41.250000,hm,0,Write,2822144,4096,71730\n",
        [(0, 32768, True, 383496192), (250_000_100, 4096, False, 2822144)],
    ),
    "systor17": (
        "Timestamp,Response,IOType,LUN,Offset,Size\n"
        "1456135200.013118000,0.000806,W,1,4096,8192\n"
        "1456135201.5,,R,0,899056122368,131072\n",
        [(0, 8192, False, 4096), (1_486_882_000, 131072, True, 899056122368)],
    ),
    "alibaba": (
        "1,R,126703661056,4096,1577808000000046\n0,W,19496058880,77824,1577808000000426\n",
        [(0, 4096, True, 126703661056), (380_000, 77824, False, 19496058880)],
    ),
    "tencent": (
        "1538323200,12910952,128,0,1\n1538323202,6338688,8,1,0\n",
        [(0, 65536, True, 6610407424), (2_000_000_000, 4096, False, 3245408256)],
    ),
    "spc": (
        "1,20941264,8192,W,0.551706\n0, 3436288, 15872, r, 1.25072, 7, x\n",
        [(0, 8192, False, 10721927168), (699_014_000, 15872, True, 1759379456)],
    ),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_formats_are_known_by_their_first_lines(tmp_path: Path, name: str) -> None:
    text, expected = PUBLIC[name]
    for form in ("auto", name):
        block, report = load(written(tmp_path, text), format=form, on_error="stop")
        assert (report.format, rows(block)) == (name, expected)
    assert rows(load(written(tmp_path, text), disk=1)[0]) == expected[:1]


def test_a_heading_says_which_column_is_which(tmp_path: Path) -> None:
    """The first heading is missing; the second one has another order and other spellings."""
    text, expected = PUBLIC["msr"]
    without = written(tmp_path, text.partition("\n")[2])
    assert rows(load(without, on_error="stop")[0]) == expected
    text = "Volume ID,IO_Type,Offset,Size,Timestamp\n1,0,12910952,128,1538323200\n"
    block, report = load(written(tmp_path, text), on_error="stop")
    assert (report.format, rows(block)) == ("tencent", PUBLIC["tencent"][1][:1])


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("systor17", "1456135202.0,0.001,,0,4096,4096", "iotype '' is not R or W"),
        ("systor17", "1456135202.x,0.001,R,0,4096,4096", "timestamp"),
        ("alibaba", "0,T,0,4096,1577808000000046", "opcode 'T' is not R or W"),
        ("tencent", "1538323200,1,8,2,0", "iotype '2' is not 0 or 1"),
        ("spc", "0,1,512,W,nan", "timestamp 'nan' is not a number"),
        ("spc", f"0,{1 << 61},512,W,1", "lba"),
        ("msr", "1,hm,0,Read,0,512", "has 6 columns"),
    ],
)
def test_a_row_that_its_format_cannot_have_is_left_out_with_its_reason(
    tmp_path: Path, name: str, row: str, reason: str
) -> None:
    text, expected = PUBLIC[name]
    block, report = load(written(tmp_path, text + row + "\n"))
    assert (rows(block), report.malformed) == (expected, 1)
    assert reason in report.examples[0][1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("FIU is not supported", f"0 4892 syslogd 904265560 8 W 6 0 {'531e779a' * 4}\n"),
        (
            "blkparse is not supported",
            "  8,0  3  1  0.000000000  697  Q   W 223490 + 8 [k]\n",
        ),
        ("not known", "time,block\n1,2\n"),
    ],
)
def test_a_trace_that_is_not_supported_is_named_with_those_that_are(
    tmp_path: Path, name: str, text: str
) -> None:
    with raises(UserError, name, *FORMATS):
        load(written(tmp_path, text))


BAD = [
    ("x,0x10,DiskRead", "time 'x' is not a number"),
    ("5,zz,DiskRead", "size 'zz' is not a number"),
    ("5,0x10,DiskErase", "kind 'DiskErase'"),
    ("5,0x10", "has 2 columns"),
    ("-5,0x10,DiskRead", "out of range"),
    ("1_0,0x10,DiskRead", "time '1_0' is not a number"),  # as the simulator and the replayer report
    ("5,+0x10,DiskRead", "size '+0x10' is not a number"),
    ("99999999999999999999,0x10,DiskRead", "out of range"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_malformed_rows_are_counted_with_their_line_or_stop(
    tmp_path: Path, bad: str, reason: str
) -> None:
    path = written(tmp_path, f"1,0x10,DiskRead\n{bad}\n7,0x10,DiskRead\n{bad}\n")
    block, report = load(path)
    assert block.time_ns.tolist() == [1, 7]
    assert report.malformed == 2
    assert [line for line, _ in report.examples] == [2, 4]
    assert reason in report.sentence(path)
    assert "2 malformed rows left out" in report.sentence(path)
    with raises(UserError, where="line 2") as answer:
        load(path, on_error="stop")
    assert reason in str(answer.value)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", {}, "the file is empty"),
        (" \n\n", {}, "the file is empty"),
        ("hello\nworld\n", {}, "format is not known"),
        (PLAIN, {"format": "xml"}, "allowed: plain"),
        (PLAIN, {"disk": 1}, "leave the disk out"),
        (PLAIN, {"format": "microsoft"}, "no EndHeader"),
        (OLD.replace("IOSize", "Size"), {}, "no column IOSize"),
        ("x" * 70_000, {}, "has no end"),
    ],
)
def test_what_is_no_trace_is_reported(
    tmp_path: Path, text: str, options: dict[str, object], reason: str
) -> None:
    path = written(tmp_path, text)
    with raises(UserError, reason) as answer:
        load(path, **options)
    assert str(path) in str(answer.value)


def test_blocks_bound_memory_and_rows_find_their_place(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    times = np.arange(1000) * 10
    late = times + random.integers(0, 300, 1000)  # up to 30 places away
    text = "".join(f"{t},0x10,DiskRead\n" for t in late)
    reader = TraceReader(written(tmp_path, text), block=64)
    blocks = list(reader)
    assert max(len(block) for block in blocks) <= 64
    assert np.concatenate([b.time_ns for b in blocks]).tolist() == sorted(late.tolist())
    assert reader.report.reordered > 0
    beyond = [*range(1000, 1200), 5, *range(1200, 1400)]
    text = "".join(f"{t},0x10,DiskRead\n" for t in beyond)
    with raises(UserError, "sort the file by time"):
        list(TraceReader(written(tmp_path, text), block=16))


BLOCKS = st.lists(
    st.tuples(st.integers(0, 2**61), st.integers(0, 2**40), st.booleans(), st.integers(-1, 2**50)),
    min_size=1,
    max_size=20,
)


@given(BLOCKS, st.booleans())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_saved_is_loaded(
    tmp_path: Path, given_rows: list[tuple[int, int, bool, int]], packed: bool
) -> None:
    block = RequestBlock.of(given_rows).by_time()
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    assert save([block], path) == len(given_rows)
    assert rows(load(path)[0]) == rows(block)


@given(
    st.one_of(
        st.binary(max_size=100),
        st.text(max_size=60).map(str.encode),
        st.lists(
            st.sampled_from(
                b"DiskRead DiskWrite EndHeader BeginHeader TimeStamp IOSize ByteOffset".split()
                + b"ElapsedTime Read 0x10 7 -1 Timestamp Offset Size IOType VolumeID R 1.5".split()
                + [b"\n", b",", b" "]
            ),
            max_size=40,
        ).map(b"".join),
    ),
    st.sampled_from(["auto", *FORMATS]),
    st.sampled_from(["skip", "stop"]),
    st.booleans(),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_break_a_loader(
    tmp_path: Path, content: bytes, form: str, on_error: str, packed: bool
) -> None:
    path = written(tmp_path, gzip.compress(content) if packed else content)
    try:
        block, report = load(path, format=form, on_error=on_error)
    except UserError as error:
        assert str(path) in str(error)
        return
    assert len(block) == report.requests
    assert (np.diff(block.time_ns) >= 0).all()
    assert (block.size >= 0).all()
