"""Files and commands of the role cosbench, without a release of COSBench."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

VARIABLES = {"cosbench_address": "192.0.2.30", "cosbench_controller_port": 19088}
VARIABLES |= {"cosbench_driver_port": 18088, "cosbench_concurrency": 2}


@pytest.fixture
def role(root: Path) -> Path:
    return root / "playbooks" / "roles" / "cosbench"


@pytest.fixture
def defaults(role: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    return found


def rendered(role: Path, name: str, **variables: Any) -> str:
    import jinja2

    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((role / "templates" / name).read_text())
    return template.render(**VARIABLES, **variables)


def place(defaults: dict[str, Any], root: Path) -> subprocess.CompletedProcess[str]:
    argv = ["sh", "-c", defaults["cosbench_place"], "sh", str(root), str(root / ".unpacked-1")]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def unpacked(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    (folder / "start-controller.sh").write_text("")
    (folder / "VERSION").write_text(version)


def test_a_release_is_put_in_place_and_results_are_kept(
    defaults: dict[str, Any], tmp_path: Path
) -> None:
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


def test_the_controllers_settings(role: Path) -> None:
    drivers = ["http://192.0.2.30:18088/driver", "http://192.0.2.31:18088/driver"]
    parser = configparser.ConfigParser()
    parser.read_string(rendered(role, "controller.conf.j2", cosbench_drivers=drivers))
    assert parser.getint("controller", "drivers") == 2
    assert parser.getint("controller", "concurrency") == 2
    assert [parser[f"driver{n}"]["url"] for n in (1, 2)] == drivers
    parser.read_string(rendered(role, "driver.conf.j2"))
    assert parser["driver"]["url"] == drivers[0]


def test_the_units(role: Path, defaults: dict[str, Any]) -> None:
    variables = {name: defaults[name] for name in ("cosbench_user", "cosbench_root")}
    variables["cosbench_heap"] = defaults["cosbench_heap"]
    variables["cosbench_options"] = defaults["cosbench_java_options"]
    text = rendered(role, "hotbed-cosbench.service.j2", item="driver", **variables)
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    assert "--add-opens=java.base/java.io=ALL-UNNAMED -Dosgi.parentClassloader=ext" in command
    assert "-Dcosbench.tomcat.config=conf/driver-tomcat-server.xml" in command
    assert command.endswith(
        "-cp main/* org.eclipse.equinox.launcher.Main -configuration conf/.driver"
    )
    # Nobody gets the console that a release's own scripts open.
    assert "-console" not in text
    assert "User=hotbed-cosbench" in text


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ('<Connector port="19088" protocol="HTTP/1.1" />', "/>"),
        ('<Connector\n   protocol="HTTP/1.1"\n port="1">', ">"),
    ],
)
def test_services_listen_at_one_address(role: Path, line: str, end: str) -> None:
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
