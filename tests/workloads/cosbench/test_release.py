"""Checks of an unpacked release."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from schemas.errors import UserError
from workloads.cosbench.release import Release, ReleaseFinding, examine, java_options

CONF = (
    "[controller]\ndrivers = 1\nconcurrency = 2\n\n[driver1]\nurl = http://127.0.0.1:18088/driver\n"
)
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.2\" 2022-01-18' >&2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "0.4.2"
    for name in ("start-controller.sh", "start-driver.sh", "cosbench-start.sh", "VERSION"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("0.4.2\n")
    (root / "conf").mkdir()
    (root / "conf" / "controller.conf").write_text(CONF)
    return root


@pytest.fixture
def java(tmp_path: Path) -> str:
    path = tmp_path / "java"
    path.write_text(JAVA)
    path.chmod(0o755)
    return str(path)


def look(folder: Path, java: str | None) -> Release:
    return examine(folder, java=java)


def finding(release: Release, what: str) -> ReleaseFinding:
    return next(each for each in release.findings if each.what.startswith(what))


def test_a_whole_release(folder: Path, java: str) -> None:
    found = look(folder, java)
    assert found.good, [each for each in found.findings if not each.good]
    assert found.version == "0.4.2"
    assert "2 workload(s) at once" in finding(found, "conf/controller.conf").found
    # The scripts do not open modules that Java 17 closes; the finding reports this and the fix.
    assert not finding(found, "options for Java 17").good
    assert "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED" in found.java_options
    (folder / "cosbench-start.sh").write_text(f"java {found.java_options} x")
    assert finding(look(folder, java), "options for Java 17").good


def test_other_versions_and_no_java(folder: Path, tmp_path: Path) -> None:
    (folder / "VERSION").unlink()
    found = look(folder, str(tmp_path / "none"))
    assert not finding(found, "version").good
    assert not finding(found, "version").needed
    assert "openjdk-17-jre-headless" in finding(found, "java").advice
    assert not found.good
    for no_release in (folder.parent, folder / "conf"):
        with pytest.raises(UserError):
            look(no_release, None)


def test_the_role_gives_the_same_options(root: Path) -> None:
    defaults = yaml.safe_load((root / "playbooks/roles/cosbench/defaults/main.yml").read_text())
    plain, more = defaults["cosbench_java_options"], defaults["cosbench_s3_options"]
    assert tuple(plain) == java_options(17)
    assert tuple(plain + more) == java_options(17, s3=True)
    assert java_options(8) == ()
