"""Bundles made to exhaust the checking machine: each is refused with one sentence."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.bundle import archive
from analysis.bundle.archive import GIB, quiet
from hotbed import contained
from schemas.errors import HotbedError, UserError
from tests.errors import raises
from tests.hotbed.tiny_bundle import CAMPAIGN, contents, pack, run_folder
from tests.schemas.test_yaml_file import LAUGHS

MOST_CPU_S, MOST_MEMORY_MIB = 10, 500
Files = dict[str, bytes]


def parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def many_rows(groups: int = 50) -> bytes:
    """Return equal numbers in a few kB, 80 MB per row group."""
    group = pa.table({"t_s": pa.array(np.zeros(10_000_000))})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, group.schema, compression="zstd") as writer:
        for _ in range(groups):
            writer.write_table(group, row_group_size=len(group))
    return sink.getvalue()


def long_texts() -> bytes:
    """Return a table with a 1 MB text that a million rows reference."""
    rows = pa.array(np.zeros(1_000_000, dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(rows, pa.array(["x" * 2**20]))
    return parquet(pa.table({"node": column}), compression="zstd")


def deltas() -> bytes:
    """Return long texts that differ only in their last characters, encoded as deltas."""
    texts = ["x" * 2**18 + str(number) for number in range(200)]
    encoding = {"node": "DELTA_BYTE_ARRAY"}
    table = pa.table({"node": texts})
    return parquet(table, use_dictionary=False, column_encoding=encoding, compression="zstd")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *notes: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    rows = zlib.compress(b"\0" * 10_000)
    parts = (chunk(b"IHDR", head), *notes, chunk(b"IDAT", rows), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def drawn(name: str, data: bytes) -> Callable[[Files], Files]:
    return lambda files: {f"artifacts/{CAMPAIGN}/figures/{name}": data}


def in_run(name: str, data: Callable[[], bytes]) -> Callable[[Files], Files]:
    return lambda files: {f"{run_folder(files)}/{name}": data()}


HOSTILE: dict[str, Callable[[Files], Files]] = {
    "aliases": lambda files: {f"campaigns/{CAMPAIGN}.yaml": LAUGHS.encode()},
    "aliases in a spec": lambda files: {"specs/dlr.yaml": LAUGHS.encode()},
    "deep YAML": lambda files: {"specs/dlr.yaml": b"[" * 1_000_000},
    "long YAML": lambda files: {"specs/dlr.yaml": b"- [a, b]\n" * 1_000_000},
    "deep JSON": in_run("run.json", lambda: b"[" * 1_000_000),
    "picture": drawn("a.png", png(60_000, 60_000)),
}
"""Files that are named wherever they are read."""

GREEDY: dict[str, Callable[[Files], Files]] = {
    "lists": in_run("run.json", lambda: b'{"a": [' + b"[]," * 7_000_000 + b"1]}"),
    "claims": lambda files: {
        f"artifacts/{CAMPAIGN}/claims.json": b"[" + b"{}," * 7_000_000 + b"1]"
    },
    "rows": in_run("samples.parquet", many_rows),
}
"""Files that only the limits of the process refuse."""

HARMLESS: dict[str, Callable[[Files], Files]] = {
    "PDF": drawn("a.pdf", b"%PDF-1.4\n" + b"stream\n" * 500_000),
    "PDF of streams": drawn("a.pdf", b"%PDF-1.4\n" + b"stream\nendstream" * 200_000),
    "PDF of packed words": drawn(
        "a.pdf",
        b"%PDF-"
        + (b"1 0 obj /Filter /FlateDecode /Metadata\nstream\n" + zlib.compress(bytes(2**20)))
        * 1000,
    ),
    "notes": drawn("a.png", png(1, 1, *[chunk(b"zTXt", b"x" * 100_000)] * 20)),
    "texts": in_run("samples.parquet", long_texts),
    "deltas": in_run("samples.parquet", deltas),
    "blanks": in_run(
        "logs/cell.log", lambda: b"ssh" + b" " * 300_000 + b"\nlogin" + b"\t" * 99_999
    ),
    "lines": in_run("logs/cell.log", lambda: b"host" + b"\n" * 300_000 + b"login" + b"\t" * 99_999),
    "dots": in_run("logs/cell.log", lambda: b"ssh " + b"a." * 200_000),
    "numbers": in_run("summary.json", lambda: b'{"whole": [' + b"9" * 1_000_000 + b"]}"),
    "large numbers": in_run(
        "run.json", lambda: b'{"parameters": {"osds": 1e300, "duration_s": 1e308}}'
    ),
}
"""Files that need no refusal if the reading time is proportional to their size."""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return contents(tmp_path)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_named_before_it_is_read(what, files, tmp_path):
    (found,) = HOSTILE[what](files).items()
    name, data = found
    file = tmp_path / "file"
    file.write_bytes(data)
    assert len(zlib.compress(data)) < 300_000
    with pytest.raises(UserError) as refused:
        archive.look({name: file}, tmp_path / "x.zip")
    assert name in str(refused.value)
    assert "\n" not in str(refused.value)


def test_looking_for_secrets_takes_moderate_time(files, tmp_path):
    """Worst known inputs, in a process with a limit on its processor time."""
    names = {}
    for what in ("PDF", "blanks", "notes"):
        ((name, data),) = HARMLESS[what](files).items()
        (tmp_path / what).write_bytes(data)
        names[name] = str(tmp_path / what)
    code = (
        "import resource, sys, pathlib\n"
        "from analysis.bundle.private import private_in\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({MOST_CPU_S}, {MOST_CPU_S}))\n"
        f"list(private_in({{name: pathlib.Path(file) for name, file in {names}.items()}}))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("mib", [70, pytest.param(1900, marks=pytest.mark.soak)])
def test_a_bomb_is_not_unpacked(tmp_path, mib):
    with (
        zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as made,
        made.open("artifacts/x.log", "w") as sink,
    ):
        for _ in range(mib):
            sink.write(bytes(2**20))
    (tmp_path / "out").mkdir()
    with raises(UserError, "times its size"):
        archive.unpack(tmp_path / "x.zip", tmp_path / "out", most_bytes=GIB * 16, progress=quiet)
    assert not list((tmp_path / "out").iterdir())


MEASURED = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
said = done.stdout.decode(errors="replace")
cpu_s, memory_mib = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
print(json.dumps([done.returncode, said, cpu_s, memory_mib]))
"""
"""Small wrapper process, because a process's memory peak starts from its parent's."""


def checked(bundle: Path, *verb: str) -> tuple[int, str, float, float]:
    """Return exit code, output, processor time (s) and memory (MiB) of a verb on a bundle."""
    command = [sys.executable, "-m", "hotbed.cli", *verb, str(bundle)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True
    )
    code, said, cpu_s, memory_mib = json.loads(done.stdout)
    return code, said, cpu_s, memory_mib


def refused(bundle: Path, *verb: str) -> None:
    code, said, cpu_s, memory_mib = checked(bundle, *verb)
    sentences = [one for one in said.splitlines() if one.startswith("hotbed: ")]
    assert (code, len(sentences)) == (2, 1), said
    assert "Traceback" not in said
    assert cpu_s < MOST_CPU_S
    assert memory_mib < MOST_MEMORY_MIB


SLOW = {("aliases", "verify"), ("lists", "rerun --dry-run"), ("rows", "rerun --dry-run")}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("what", "verb"),
    [
        pytest.param(
            what, verb, marks=pytest.mark.slow if (what, verb) in SLOW else pytest.mark.soak
        )
        for what in (*HOSTILE, *GREEDY)
        for verb in ("verify", "rerun --dry-run")
    ],
)
def test_each_is_refused_at_a_moderate_cost(what, verb, files, tmp_path):
    hostile = {**HOSTILE, **GREEDY}[what]
    refused(pack(tmp_path / "x.zip", files | hostile(files)), *verb.split())


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", HARMLESS)
def test_verify_ends_with_each(what, files, tmp_path):
    bundle = pack(tmp_path / "x.zip", files | HARMLESS[what](files))
    code, said, _, memory_mib = checked(bundle, "verify")
    assert code in (1, 2)
    assert "Traceback" not in said
    assert memory_mib < MOST_MEMORY_MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("waste", "what"),
    [
        ("[bytes(2**20) for _ in range(10_000)]", "memory"),
        ("sum(iter(int, 1))", "processor time"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "memory or processor time"),
    ],
)
def test_what_nobody_thought_of_ends_at_the_limits(waste, what, files, tmp_path, monkeypatch):
    """A defect in the reading code, injected when the process starts."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, zipfile\n"
        "from hotbed import contained\n"
        "contained.READING_S = 1.0\n"
        f"zipfile.ZipFile.infolist = lambda archive: {waste}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    bundle = pack(tmp_path / "x.zip", files)
    with raises(UserError, what):
        contained.verify(bundle)


def test_a_defect_is_one_sentence(files, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['hotbed.contained'] = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with raises(HotbedError, "could not be checked"):
        contained.verify(pack(tmp_path / "x.zip", files))
