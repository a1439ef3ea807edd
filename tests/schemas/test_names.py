"""Names of files from nodes, archives and bundles, and tar archives with such names."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import names
from schemas.errors import UserError
from schemas.names import UnsafeNameError, safe_path, unpack_tar

SAFE = ("a", "w1-mos A/s3-main.csv", "...", ".hidden/x", "mix: 50%/é.csv", "x" * 255)
UNSAFE = (
    *("", ".", "..", "/etc/passwd", "../x", "a/../x", "a/..", "./a", "a//b", "a/"),
    *("a\0b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\u202eb", "a\u2028b", "a\udcffb"),
    *("x" * 256, "é" * 128, "/".join(["x" * 200] * 6)),
)


@pytest.mark.parametrize("name", SAFE)
def test_a_relative_path_is_returned(name):
    assert safe_path(name, "node n1") == name


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_name_is_refused_with_its_source(name):
    with pytest.raises(UnsafeNameError) as caught:
        safe_path(name, "node n1")
    assert (caught.value.name, caught.value.source) == (name, "node n1")
    assert str(caught.value).isprintable()


@given(st.text(alphabet="ab1._-/ \\:\n\u00e9~", max_size=12))
def test_the_quick_check_accepts_nothing_that_the_whole_one_refuses(name):
    if names._PLAIN.fullmatch(name):
        assert names._unsafe(name) is None


def _tar(*entries: tarfile.TarInfo | str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            member.size = member.size or (4 if member.isfile() else 0)
            archive.addfile(member, io.BytesIO(b"data"))
    return buffer.getvalue()


def _special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo("inner")
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "bad",
    [
        *("../evil", "/evil", "sub/../../evil"),
        *(_special(kind, "../evil") for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE)),
        *(_special(kind) for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)),
    ],
)
def test_a_tar_archive_that_leads_out_leaves_nothing(tmp_path, bad):
    (tmp_path / "in").mkdir()
    with pytest.raises(UnsafeNameError):
        unpack_tar(_tar("good", bad), tmp_path / "in", "node n1")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


@pytest.mark.parametrize(
    ("data", "most_bytes"),
    [(_tar("a"), 9), (b"", 9), (b"no tar", 9), (_tar("a" * 50)[:40], 9), (_tar("b", "c"), 7)],
    ids=["replaces", "empty", "text", "cut off", "large"],
)
def test_a_tar_archive_that_is_damaged_large_or_replaces_a_file_is_refused(
    tmp_path, data, most_bytes
):
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(UserError):
        unpack_tar(data, tmp_path, "node n1", most_bytes=most_bytes)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"mine"]
