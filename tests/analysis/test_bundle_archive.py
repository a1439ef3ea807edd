"""Archive of a bundle: equal contents give equal bytes, and hostile archives do no harm."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.bundle.archive import GIB, digest, quiet, unpack, write
from schemas.errors import UserError
from tests.errors import raises


def made(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    found = {}
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        found[name] = path
    return found


def unpacked(archive: Path, most_bytes: int = GIB) -> dict[str, bytes]:
    """Return the contents by name; they are unpacked next to the archive."""
    out = archive.with_suffix(".out")
    out.mkdir()
    found = unpack(archive, out, most_bytes=most_bytes, progress=quiet)
    assert all(digest(out / name) == its for name, its in found.items())
    return {name: (out / name).read_bytes() for name in found}


def test_equal_contents_give_equal_bytes(tmp_path):
    contents = {"b/x.json": b"{}" * 1000, "a.txt": b"a", "b/empty": b""}
    contents |= {f"run{number}/a": b"%d" % number for number in range(90)}
    first = made(tmp_path / "one", contents)
    second = made(tmp_path / "two", dict(reversed(contents.items())))
    for path in second.values():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    sums = [
        write(tmp_path / f"{index}.zip", files, quiet)
        for index, files in enumerate((first, second))
    ]
    assert sums[0] == sums[1] == digest(tmp_path / "0.zip").sha256
    assert not list(tmp_path.glob(".*"))
    assert unpacked(tmp_path / "0.zip") == contents


def _with(*names: str, **changes: int) -> Callable[[zipfile.ZipFile], None]:
    def add(opened: zipfile.ZipFile) -> None:
        for name in names:
            info = zipfile.ZipInfo(name)
            for key, value in changes.items():
                setattr(info, key, value)
            opened.writestr(info, b"x")

    return add


HARMFUL = {
    "leaves the folder": [_with("../x"), _with("/etc/x"), _with("a/../../x"), _with("a//x")],
    "means something else": [_with("a\\x"), _with("C:x")],
    "has a control character": [_with("a\nb")],
    "no plain file": [_with("x", external_attr=(stat.S_IFLNK | 0o777) << 16)],
    "is compressed in a way": [_with("x", compress_type=zipfile.ZIP_LZMA)],
    "of another entry": [
        *(_with("a", "A"), _with("x/é", "x/e\u0301")),
        *(_with("a/b", "A/c", "a"), _with("a", "ab", "a/b/c")),
    ],
}


@pytest.mark.parametrize(
    ("said", "add"), [(said, add) for said, several in HARMFUL.items() for add in several]
)
def test_a_harmful_entry_is_refused_before_anything_is_written(tmp_path, said, add):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as opened:
        opened.writestr("good.txt", b"good")
        add(opened)
    with raises(UserError, said, where="x.zip", do="do not trust it"):
        unpacked(tmp_path / "x.zip")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["x.out", "x.zip"]


def test_an_archive_unpacks_to_no_more_than_it_states_and_is_allowed(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("x", bytes(100_000))
    with raises(UserError, "--most-gib"):
        unpacked(tmp_path / "x.zip", most_bytes=99_999)
    data = (tmp_path / "x.zip").read_bytes()
    lying = data.replace((100_000).to_bytes(4, "little"), b"\x0a\0\0\0")
    (tmp_path / "lying.zip").write_bytes(lying)
    with pytest.raises(UserError):
        unpacked(tmp_path / "lying.zip")
    assert (tmp_path / "lying.out" / "x").stat().st_size <= 10


def test_a_damaged_archive_is_one_sentence(tmp_path):
    """Changes include a cut, the deflated bytes and a name flagged as UTF-8."""
    text = b"".join(b"%d," % number for number in range(20_000))
    write(tmp_path / "x.zip", made(tmp_path, {"a-name": text, "b": b"b"}), quiet)
    data = (tmp_path / "x.zip").read_bytes()
    middle = len(data) // 2
    stream = data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    name = bytearray(data.replace(b"a-name", b"\xff-name"))
    name[data.index(b"PK\1\2") + 9] |= 0x08
    changed = (b"", data[:10], data[:-30], stream + data[middle + 64 :], bytes(name))
    for index, broken in enumerate(changed):
        (tmp_path / f"{index}.zip").write_bytes(broken)
        with raises(UserError, "damaged", do="fetch it again"):
            unpacked(tmp_path / f"{index}.zip")


def test_a_folder_is_no_place_for_an_archive(tmp_path):
    for target in (tmp_path, Path()):
        with raises(UserError, do="--out"):
            write(target, {}, quiet)
