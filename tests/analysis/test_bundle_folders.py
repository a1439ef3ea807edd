"""Where bundles are worked on: in memory where there is enough, and nothing is left there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.aside import Aside
from analysis.bundle import folders, memory, private
from analysis.bundle.archive import unpacked_bytes
from analysis.bundle.folders import working_folder
from analysis.bundle.scan import _HINTS, Beside, scan

MIB = 2**20
MEMINFO = "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   4000 kB\n"


def system(place: Path, cgroup: str, groups: dict[str, dict[str, str]]) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup as a kernel shows them."""
    proc, cgroups = place / "proc", place / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "self" / "cgroup").write_text(cgroup)
    for name, files in groups.items():
        (cgroups / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (cgroups / name / file).write_text(text)
    return proc, cgroups


def v2(limit: str, used: int, dropped: int = 0) -> dict[str, str]:
    """The files of a control group of version 2."""
    stat = f"anon 5\ninactive_file {dropped}\n"
    return {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}


def v1(limit: int, used: int, dropped: int = 0) -> dict[str, str]:
    """The files of a control group of version 1."""
    stat = f"inactive_file 1\ntotal_inactive_file {dropped}\n"
    files = {"memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{used}\n"}
    return files | {"memory.stat": stat}


@pytest.mark.parametrize(
    ("cgroup", "groups", "left"),
    [
        ("0::/\n", {}, 4000 * 1024),
        ("0::/user\n", {"user": v2("max", 900)}, 4000 * 1024),
        ("0::/user\n", {"user": v2("1000", 900)}, 100),
        ("0::/user\n", {"user": v2("1000", 900, dropped=300)}, 400),
        ("0::/a/b\n", {"a/b": v2("max", 10), "a": v2("700", 200)}, 500),
        # A container's own group is its root, and the path is one of the host's.
        ("0::/host/path\n", {".": v2("600", 200)}, 400),
        ("0::/user\n", {"user": v2("1000", 1200)}, 0),
        ("4:memory:/job\n1:cpu:/job\n0::/\n", {"memory/job": v1(2000, 500, 100)}, 1600),
        ("4:memory:/job\n", {"memory": v1(2000, 500)}, 1500),
        ("4:cpu:/job\n", {"memory/job": v1(2000, 500)}, 4000 * 1024),
        ("nothing known\n", {}, 4000 * 1024),
    ],
)
def test_what_is_left_of_memory(
    tmp_path: Path, cgroup: str, groups: dict[str, dict[str, str]], left: int
) -> None:
    assert memory.available(*system(tmp_path, cgroup, groups)) == left


def test_a_system_that_tells_nothing_has_no_memory_to_spare(tmp_path: Path) -> None:
    assert memory.available(tmp_path, tmp_path) == 0
    (tmp_path / "meminfo").write_text("MemAvailable: much\n")
    assert memory.available(tmp_path, tmp_path) == 0


@pytest.fixture
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for one in memory, 400 MiB of which can be had."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr(folders, "MEMORY", place)
    monkeypatch.setattr(folders, "_is_memory", lambda _: True)
    monkeypatch.setattr(memory, "available", lambda: 400 * MIB)
    return place


@pytest.mark.parametrize(
    ("need", "there"), [(10 * MIB, True), (100 * MIB, True), (101 * MIB, False), (None, False)]
)
def test_small_ones_are_worked_on_in_memory(in_memory: Path, need: int | None, there: bool) -> None:
    with working_folder("hotbed-bundle-", need) as place:
        assert (place.parent == in_memory) is there
        (place / "artifacts" / "campaign" / "run").mkdir(parents=True)
        (place / "artifacts" / "campaign" / "run" / "file").write_text("something")
    assert not place.exists()


def test_the_folder_that_is_asked_for_is_taken(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(in_memory.parent))
    with working_folder("hotbed-bundle-", 1) as place:
        assert place.parent != in_memory


def test_a_disk_is_not_taken_for_memory(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(folders, "MEMORY", in_memory)
    with working_folder("hotbed-bundle-", 1) as place:
        assert place.parent != in_memory


def test_what_a_killed_process_left_in_memory_goes(in_memory: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from analysis.bundle import folders\n"
        "folders.MEMORY = Path(sys.argv[1]); folders._is_memory = lambda _: True\n"
        "with folders.working_folder('hotbed-bundle-', 1) as place:\n"
        "    (place / 'file').write_text('something')\n"
        "    print(place, flush=True); time.sleep(600)\n"
    )
    root = str(Path(folders.__file__).resolve().parents[2])
    environment = {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "TEMP", "TMP")}
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(in_memory)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment | {"PYTHONPATH": root},
    )
    assert other.stdout is not None
    try:
        theirs = Path(other.stdout.readline().strip())
        assert theirs.parent == in_memory
        os.utime(theirs, (1, 1))
        with working_folder("hotbed-bundle-", 1):
            assert (theirs / "file").exists(), "it is held"
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
    os.utime(theirs, (1, 1))
    with working_folder("hotbed-bundle-", 1):
        pass
    assert not theirs.exists()


def test_nothing_else_in_memory_goes(in_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, left = in_memory / "hotbed-bundle-abcdefg0", in_memory / "hotbed-verify-abcdefg1"
    others = [
        in_memory / name
        for name in ("others", "hotbed-notes", "hotbed-bundle-of-mine", "hotbed-verify-")
    ]
    for folder in (fresh, left, *others):
        folder.mkdir()
        (folder / "file").write_text("something")
    for folder in (left, *others):
        os.utime(folder, (1, 1))
    (in_memory / "hotbed-bundle-abcdefg2").symlink_to(others[0])
    user = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: user + 1)
    with working_folder("hotbed-bundle-", 1):
        assert (left / "file").exists(), "it is another user's"
    monkeypatch.setattr("os.geteuid", lambda: user)
    with working_folder("hotbed-bundle-", 1):
        assert not left.exists()
    assert (fresh / "file").exists(), "it may just be being made"
    assert all((folder / "file").exists() for folder in others)


def test_the_size_of_an_archive_that_is_none_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("no archive")
    assert unpacked_bytes(tmp_path / "x.zip") is None
    assert unpacked_bytes(tmp_path / "missing.zip") is None


def some(place: Path, count: int) -> dict[str, Path]:
    """Files, every third of which holds an address."""
    files = {}
    for number in range(count):
        file = place / f"file-{number}.txt"
        file.write_text("fine\n" + ("from 10.1.2.3\n" if number % 3 == 0 else ""))
        files[file.name] = file
    return files


def test_another_process_finds_the_same_also_in_what_is_moved_meanwhile(tmp_path: Path) -> None:
    files = some(tmp_path, 20)
    alone = scan(files)
    assert len(alone) == 7
    moved = {name: tmp_path / "elsewhere" / name for name in files}
    (tmp_path / "elsewhere").mkdir()
    for name in list(files)[:10]:
        files[name].rename(moved[name])
    with Beside() as beside:
        for name in list(files)[:15]:
            beside.add(name, files[name], moved[name])
        assert scan(files, begun=beside) == alone


def test_names_are_looked_at_by_another_process_too(tmp_path: Path) -> None:
    files = {"of-10.1.2.3.txt": tmp_path / "x"}
    (tmp_path / "x").write_text("fine\n")
    with Beside() as beside:
        beside.add("of-10.1.2.3.txt", tmp_path / "x")
        assert scan(files, begun=beside) == scan(files) != []


def test_more_files_than_a_pipe_takes_do_not_hold_up_who_adds_them(tmp_path: Path) -> None:
    files = some(tmp_path, 3)
    (file,) = [file for name, file in files.items() if name == "file-0.txt"]
    with Beside() as beside:
        for number in range(3000):
            beside.add(f"{'long' * 40}-{number}.txt", file)
        assert len(beside.found()) == 3000


def test_what_a_killed_process_has_not_looked_through_is_looked_through(tmp_path: Path) -> None:
    files = some(tmp_path, 9)
    with Beside({"fine": "a word"}) as beside:
        beside._process.kill()
        beside._process.wait()
        for name, file in files.items():
            beside.add(name, file)
        assert len(scan(files, {"fine": "a word"}, begun=beside)) == 12


@pytest.mark.parametrize("told", [None, "", "."])
def test_a_file_in_the_current_folder_is_no_library(
    told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where this process takes it for one, as a notebook's does."""
    (tmp_path / "json.py").write_text("raise SystemExit('of somebody else')\n")
    (tmp_path / "analysis").mkdir()
    (tmp_path / "analysis" / "__init__.py").write_text("raise SystemExit('of somebody else')\n")
    monkeypatch.chdir(tmp_path)
    if told is not None:
        monkeypatch.syspath_prepend(told)
    with Beside() as beside:
        beside.add("json.py", tmp_path / "json.py")
        assert beside.found() == {"json.py": []}
        assert beside._process.returncode == 0
    aside = Aside()
    try:
        descriptor = aside._pipes()[1].fileno()
        assert os.read(descriptor, 1) == b"."
    finally:
        aside.kill()


def test_it_ends_with_the_block(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Beside() as beside:
        beside.add("x", tmp_path / "x")
        raise KeyboardInterrupt
    assert beside._process.returncode is not None


def test_hints_have_nothing_that_is_left_out() -> None:
    assert all(private.letters(hint) == hint for hint in _HINTS)
