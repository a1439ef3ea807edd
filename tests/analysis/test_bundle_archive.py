"""Archive of a bundle: equal contents give equal bytes, and hostile archives do no harm."""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.bundle import archive
from schemas.errors import UserError


def quiet(_phase: str, _share: float) -> None:
    """Ignore the progress."""


def made(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    found = {}
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        found[name] = path
    return found


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    contents = {"b/x.json": b"{}" * 1000, "a.txt": b"a", "b/empty": b""}
    first = made(tmp_path / "one", contents)
    second = made(tmp_path / "two", dict(reversed(contents.items())))
    for path in second.values():
        os.utime(path, (1, 1))
        path.chmod(0o600)
    digests = [
        archive.write(tmp_path / f"{index}.zip", files, quiet)
        for index, files in enumerate((first, second))
    ]
    assert digests[0] == digests[1] == archive.digest(tmp_path / "0.zip").sha256
    assert not list(tmp_path.glob(".*"))
    out = tmp_path / "out"
    out.mkdir()
    found = archive.unpack(tmp_path / "0.zip", out, progress=quiet)
    assert {name: (out / name).read_bytes() for name in found} == contents
    assert found["a.txt"] == archive.digest(first["a.txt"])


def _with(name: str, **changes: int) -> Callable[[zipfile.ZipFile], None]:
    def add(opened: zipfile.ZipFile) -> None:
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
    "is a folder of its own": [_with("a/")],
    "is compressed in a way": [_with("x", compress_type=zipfile.ZIP_LZMA)],
}


@pytest.mark.parametrize(
    ("said", "add"), [(said, add) for said, several in HARMFUL.items() for add in several]
)
def test_a_harmful_entry_is_refused_before_anything_is_written(
    tmp_path: Path, said: str, add: Callable[[zipfile.ZipFile], None]
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as opened:
        opened.writestr("good.txt", b"good")
        add(opened)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=said):
        archive.unpack(tmp_path / "x.zip", tmp_path / "out", progress=quiet)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["out", "x.zip"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "A"), "is there twice"),
        (("x/é", "x/e\u0301"), "is there twice"),
        (("a/b", "A/c", "a"), "'a' is a file, and another entry lies in it"),
        (("a", "ab", "a/b/c"), "'a/b/c' lies in another entry, which is a file"),
    ],
)
def test_two_entries_of_one_name_and_a_file_in_a_file_are_refused(
    tmp_path: Path, names: tuple[str, ...], said: str
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as opened:
        for name in names:
            opened.writestr(name, b"x")
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match=said):
        archive.unpack(tmp_path / "x.zip", tmp_path / "out", progress=quiet)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_bomb_is_not_unpacked_and_an_entry_that_lies_about_its_size_is_cut_off(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("x", bytes(100_000))
    with pytest.raises(UserError, match="raise --most-gib"):
        archive.unpack(tmp_path / "x.zip", tmp_path, most_bytes=99_999, progress=quiet)
    data = (tmp_path / "x.zip").read_bytes()
    (tmp_path / "x.zip").write_bytes(data.replace((100_000).to_bytes(4, "little"), b"\x0a\0\0\0"))
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError):
        archive.unpack(tmp_path / "x.zip", tmp_path / "out", progress=quiet)
    assert (tmp_path / "out" / "x").stat().st_size <= 10


def test_what_was_changed_on_its_way_is_one_sentence(tmp_path: Path) -> None:
    """Changes include a cut, the deflated bytes and a name flagged as UTF-8."""
    text = b"".join(b"%d," % number for number in range(20_000))
    archive.write(tmp_path / "x.zip", made(tmp_path, {"a-name": text}), quiet)
    data = (tmp_path / "x.zip").read_bytes()
    middle = len(data) // 2
    stream = data[:middle] + bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    name = bytearray(data.replace(b"a-name", b"\xff-name"))
    name[data.rindex(b"PK\1\2") + 9] |= 0x08
    changed = (b"", data[:10], data[:-30], stream + data[middle + 64 :], bytes(name))
    for index, broken in enumerate(changed):
        (tmp_path / "x.zip").write_bytes(broken)
        (tmp_path / f"out{index}").mkdir()
        with pytest.raises(UserError, match="no bundle, or a damaged one"):
            archive.unpack(tmp_path / "x.zip", tmp_path / f"out{index}", progress=quiet)


def test_a_folder_is_no_place_for_an_archive(tmp_path: Path) -> None:
    for target in (tmp_path, Path()):
        with pytest.raises(UserError, match="give --out the name of a file"):
            archive.write(target, {}, quiet)


def test_what_one_thread_meets_ends_the_others(tmp_path: Path) -> None:
    contents = {f"run{number}/a": b"%d" % number for number in range(90)}
    archive.write(tmp_path / "x.zip", made(tmp_path / "made", contents), quiet)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    found = archive.unpack(tmp_path / "x.zip", whole, progress=quiet)
    assert {name: (whole / name).read_bytes() for name in found} == contents
    assert list(found) == sorted(contents)
    data = bytearray((tmp_path / "x.zip").read_bytes())
    at = data.index(b"run50/a") + len(b"run50/a")
    data[at] ^= 0xFF
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        archive.unpack(tmp_path / "x.zip", broken, progress=quiet)
