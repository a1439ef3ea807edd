"""Files and commands of the role cosbench, without a release of COSBench."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

VARIABLES = {"cosbench_address": "192.0.2.30", "cosbench_controller_port": 19088}
VARIABLES |= {"cosbench_driver_port": 18088, "cosbench_concurrency": 2}


@pytest.fixture
def role(root):
    return root / "playbooks" / "roles" / "cosbench"


@pytest.fixture
def defaults(role):
    found: dict[str, Any] = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    return found


def place(defaults: dict[str, Any], root: Path) -> subprocess.CompletedProcess[str]:
    argv = ["sh", "-c", defaults["cosbench_place"], "sh", str(root), str(root / ".unpacked-1")]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def unpacked(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    (folder / "start-controller.sh").write_text("")
    (folder / "VERSION").write_text(version)


def test_a_release_is_put_in_place_and_results_are_kept(defaults, tmp_path):
    (tmp_path / "new" / "other").mkdir(parents=True)
    done = place(defaults, tmp_path)
    assert (done.returncode, "no start-controller.sh" in done.stderr) == (1, True)
    assert not (tmp_path / ".unpacked-1").exists()
    (tmp_path / "new" / "other").rmdir()
    unpacked(tmp_path / "new" / "0.4.2.c4", "0.4.2")
    assert place(defaults, tmp_path).returncode == 0
    assert (tmp_path / "release" / "VERSION").read_text() == "0.4.2"
    assert (tmp_path / ".unpacked-1").exists()
    (tmp_path / "release" / "archive").mkdir()
    (tmp_path / "release" / "archive" / "run-history.csv").write_text("Id\n")
    # Another release replaces it, here without a folder around it.
    unpacked(tmp_path / "new", "0.4.3")
    assert place(defaults, tmp_path).returncode == 0
    assert (tmp_path / "release" / "VERSION").read_text() == "0.4.3"
    assert (tmp_path / "release" / "archive" / "run-history.csv").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ('<Connector port="19088" protocol="HTTP/1.1" />', "/>"),
        ('<Connector\n   protocol="HTTP/1.1"\n port="1">', ">"),
    ],
)
def test_services_listen_at_one_address(role, line, end):
    tasks = yaml.safe_load((role / "tasks" / "services.yml").read_text())
    change = next(
        task["ansible.builtin.replace"] for task in tasks if "ansible.builtin.replace" in task
    )
    new = change["replace"].replace("{{ cosbench_address }}", "192.0.2.30")
    new = new.replace("{{ cosbench_ports[item] }}", "19088")
    wanted = f'<Connector address="192.0.2.30" port="19088" protocol="HTTP/1.1" {end}'
    once = re.sub(change["regexp"], new, f"<Service>{line}</Service>", flags=re.MULTILINE)
    assert once == f"<Service>{wanted}</Service>"
    # A second run changes nothing.
    assert re.sub(change["regexp"], new, once, flags=re.MULTILINE) == once
