"""What is looked at of an unpacked release; the release is made here, of empty jars."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import yaml

from schemas.errors import UserError
from workloads.cosbench.release import Finding, Release, examine, java_major, java_options

BUNDLES = {"controller": "libs/a-1.0.jar@1\\:start,\\\nplugins/cosbench-core@8\\:start\n"}
BUNDLES["driver"] = "libs/a-1.0.jar@1\\:start,\\\nplugins/cosbench-swift@7\\:start\n"
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
    jars = ("osgi/libs/a-1.0.jar", "osgi/plugins/cosbench-core_0.4.2.jar")
    jars += ("osgi/plugins/cosbench-swift_0.4.2.jar", "osgi/org.eclipse.osgi-3.7.0.jar")
    for name in (*jars, "main/org.eclipse.equinox.launcher_1.2.0.jar"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(root / name, "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "")
    for service, bundles in BUNDLES.items():
        config = root / "conf" / f".{service}" / "config.ini"
        config.parent.mkdir(parents=True)
        framework = "osgi.framework=osgi/org.eclipse.osgi-3.7.0.jar"
        config.write_text(f"osgi.bundles={bundles}osgi.clean=true\n{framework}\n")
    (root / "conf" / "controller.conf").write_text(CONF)
    return root


@pytest.fixture
def java(tmp_path: Path) -> str:
    path = tmp_path / "java"
    path.write_text(JAVA)
    path.chmod(0o755)
    return str(path)


def look(folder: Path, java: str | None, **options: object) -> Release:
    return examine(folder, java=java, listens=lambda port: False, **options)  # type: ignore[arg-type]


def finding(release: Release, what: str) -> Finding:
    return next(each for each in release.findings if each.what.startswith(what))


def test_a_whole_release(folder: Path, java: str) -> None:
    found = look(folder, java)
    assert found.good, [each for each in found.findings if not each.good]
    assert found.version == "0.4.2"
    assert finding(found, "jars of the driver").found == "4 there"
    assert "2 workload(s) at once" in finding(found, "conf/controller.conf").found
    assert finding(found, "ports of the controller").found == "19088, 19089 are free"
    # The scripts do not open what Java 17 keeps closed: that is said, and how to.
    assert not finding(found, "options for Java 17").good
    assert "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED" in found.java_options
    (folder / "cosbench-start.sh").write_text(f"java {found.java_options} x")
    assert finding(look(folder, java), "options for Java 17").good


def test_missing_and_damaged_jars(folder: Path, java: str) -> None:
    (folder / "osgi/plugins/cosbench-swift_0.4.2.jar").unlink()
    (folder / "osgi/libs/a-1.0.jar").write_bytes(b"half of a jar")
    found = look(folder, java)
    assert not found.good
    said = finding(found, "jars of the driver").found
    assert said == "osgi/plugins/cosbench-swift missing; osgi/libs/a-1.0.jar damaged"
    (folder / "conf/.driver/config.ini").unlink()
    assert "cannot be read" in finding(look(folder, java), "jars of the driver").found


@pytest.mark.parametrize("text", ["", "[controller]\ndrivers=two\n", "[controller]\ndrivers=1\n"])
def test_a_controller_without_drivers(folder: Path, java: str, text: str) -> None:
    (folder / "conf/controller.conf").write_text(text)
    found = look(folder, java)
    assert not finding(found, "conf/controller.conf").good
    assert not found.good


def test_other_versions_and_no_java(folder: Path, tmp_path: Path) -> None:
    (folder / "VERSION").unlink()
    found = look(folder, str(tmp_path / "none"))
    assert not finding(found, "version").good
    assert not finding(found, "version").needed
    assert "openjdk-17-jre-headless" in finding(found, "java").advice
    assert not found.good


def test_ports_in_use(folder: Path, java: str) -> None:
    found = examine(folder, java=java, listens=lambda port: port in (18088, 19089))
    assert finding(found, "ports of the driver").found == "something listens at 18088"
    assert finding(found, "ports of the controller").found == "something listens at 19089"
    assert found.good  # it may be this very release


def test_no_release(folder: Path, java: str) -> None:
    with pytest.raises(UserError, match=r"did you mean .*/0\.4\.2"):
        look(folder.parent, java)
    with pytest.raises(UserError, match="holds no release of COSBench"):
        look(folder / "osgi", java)


def test_versions_of_java() -> None:
    assert java_major('openjdk version "17.0.2" 2022-01-18') == 17
    assert java_major('java version "1.8.0_161"') == 8
    assert java_major('openjdk version "21" 2023-09-19') == 21
    assert java_major("no java") is None
    assert java_options(8) == ()


def test_the_role_gives_the_same_options(root: Path) -> None:
    defaults = yaml.safe_load((root / "playbooks/roles/cosbench/defaults/main.yml").read_text())
    plain, more = defaults["cosbench_java_options"], defaults["cosbench_s3_options"]
    assert tuple(plain) == java_options(17)
    assert tuple(plain + more) == java_options(17, s3=True)
