"""Tutorials as a reader follows them: files written, every command given, top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

FILE_OR_COMMANDS = re.compile(
    r"^`(?P<file>[^`]+)`:\n\n```\w+\n(?P<text>.*?)^```$"
    r"|^```(?P<marks>sh[\w ]*)\n(?P<commands>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = {
    "first-figure": ["DLR raises sequential read", "report.html", "dlr: all"],
    "controller": ["passed", "my-controller"],
    "paper": ["ursa-", "report.html"],
    "artefact": ["APPENDIX.md", "compare-sim"],
    "testbed": ["quorum", "osd1"],
}
"""Words that the commands of a tutorial print if they do what the text says."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder that looks like a fresh clone, with results of its own."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in {line.partition("/")[0] for line in names.stdout.splitlines()} - {"artifacts"}:
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "reference").symlink_to(ROOT / "artifacts" / "reference")
    return tmp_path


def parts(tutorial: str, mark: str) -> Iterator[re.Match[str]]:
    """Yield the tutorial's files, and its blocks of commands marked by `mark` ("" is not local)."""
    text = (ROOT / "docs" / f"tutorial-{tutorial}.md").read_text()
    for part in FILE_OR_COMMANDS.finditer(text):
        if part["file"] or part["marks"].removeprefix("sh").strip() == mark:
            yield part


def follow(tutorial: str, clone: Path, mark: str = "", **environment: str) -> str:
    """Do what a tutorial says; return what its commands printed."""
    bin_folder = Path(sys.executable).parent
    environment = os.environ | environment | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    printed = ""
    for part in parts(tutorial, mark):
        if part["file"]:
            (clone / part["file"]).write_text(part["text"])
            continue
        done = subprocess.run(
            ["bash", "-ec", part["commands"]],
            cwd=clone,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        printed += done.stdout
        assert done.returncode == 0, f"{part['commands']}\n{done.stdout}"
    return printed


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tutorial", ["first-figure", "controller", "paper", "artefact"])
def test_a_tutorial_without_root_works_as_written(tutorial: str, clone: Path) -> None:
    printed = follow(tutorial, clone)
    for words in SHOWN[tutorial]:
        assert words in printed, printed


@pytest.mark.local
@pytest.mark.timeout(1800)
def test_a_testbed_by_hand_works_as_written(clone: Path) -> None:
    state = Path("/var/lib/hotbed-tests-tutorial")
    try:
        printed = follow("testbed", clone, HOTBED_STATE=str(state))
    finally:
        down = [sys.executable, "-m", "hotbed.cli", "down", "--all"]
        subprocess.run(down, env=os.environ | {"HOTBED_STATE": str(state)}, check=True)
    for words in SHOWN["testbed"]:
        assert words in printed, printed
    affinities = re.findall(r"osd\.1 +up .*?([\d.]+)\s*$", printed, re.MULTILINE)
    assert min(map(float, affinities)) < 1, "the controller did not react"


@pytest.mark.soak  # as long as `make reproduce`, which runs the same
@pytest.mark.local
def test_the_paper_on_a_real_ceph_is_reproduced_as_written(clone: Path) -> None:
    state = "/var/lib/hotbed-tests-reproduce"
    assert "report.html" in follow("paper", clone, "local", HOTBED_STATE=state)


def test_every_tutorial_is_followed_by_a_test() -> None:
    there = {path.stem.removeprefix("tutorial-") for path in ROOT.glob("docs/tutorial-*.md")}
    assert there == set(SHOWN)
    assert all(any(True for _ in parts(one, "")) for one in there)
