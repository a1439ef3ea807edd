"""CONTRIBUTING.md's additions, made in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text()
_CHANGE = re.compile(
    r"^`(?P<file>[^`]+)`(?:, (?P<where>after|before|replacing) `(?P<line>[^`]+)`)?:\n\n"
    r"```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SHOWN = {
    "A controller": "calm",
    "A store": "key-value",
    "A workload": "touch heterogeneity dlr",
    "A site": "4 machines of the lab",
    "A paper": "10",
}
"""Texts that a section's first command prints only if the addition is picked up."""


@dataclass(frozen=True)
class Section:
    """Section of CONTRIBUTING.md: changes of files, and commands."""

    title: str
    text: str

    def apply(self, root: Path) -> None:
        """Make the section's changes below `root`."""
        for change in _CHANGE.finditer(self.text):
            path = root / change["file"]
            if change["where"] is None:
                assert not path.exists(), f"{change['file']} is there already"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(change["text"])
                continue
            line = change["line"] + "\n"
            before = path.read_text()
            assert f"\n{before}".count(f"\n{line}") == 1, f"{change['file']}: not once: {line}"
            apart = "\n\n" if change["text"].startswith(("class ", "def ")) else ""
            new = {
                "after": line + change["text"],
                "before": change["text"] + apart + line,
                "replacing": change["text"],
            }
            path.write_text(f"\n{before}".replace(f"\n{line}", f"\n{new[change['where']]}")[1:])

    def commands(self) -> Iterator[str]:
        """Yield the section's commands."""
        for block in _COMMANDS.findall(self.text):
            yield from [block] if block.startswith("python") else block.splitlines()


SECTIONS = [
    Section(*part.split("\n", 1)) for part in re.split(r"^## ", GUIDE, flags=re.MULTILINE)[1:]
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository's files, in which the sections' additions meet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    root = tmp_path_factory.mktemp("contributing") / "copy"
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    return root


def ran(command: str, root: Path) -> str:
    """Return the output of a command of the copy; it must succeed."""
    hotbed = f"{sys.executable} -c 'from hotbed.cli import main; main()' "
    script = re.sub(r"^hotbed ", hotbed, re.sub(r"^python ", f"{sys.executable} ", command))
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "HOTBED_STATE": str(root.parent / "state")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return " ".join(done.stdout.split())


def test_every_section_adds_something() -> None:
    assert {section.title for section in SECTIONS} == set(SHOWN)


@pytest.mark.slow  # they copy the repository and start Hotbed
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.title)
def test_an_addition_is_picked_up(section: Section, copy: Path) -> None:
    """A paper goes from its cells to a verdict."""
    section.apply(copy)
    first, *others = section.commands()
    assert SHOWN[section.title] in ran(first, copy)
    if section.title == "A paper":
        assert "confirmed within tolerance" in [ran(command, copy) for command in others][-1]
