"""Start and migration of the services, and waits until they answer."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket

import requests

from tests.openstack.config import REGION, SECRET, Host, Place
from tests.openstack.processes import Processes

APPLICATIONS = {
    "identity": "keystone.wsgi.api:application",
    "placement": "placement.wsgi.api:application",
    "image": "glance.wsgi.api:application",
    "network": "neutron.wsgi.api:application",
    "compute": "nova.wsgi.osapi_compute:application",
    "reservation": "blazar.wsgi.api:application",
}
SCHEMAS = ("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0", "blazar")
PLUGINS = Path(__file__).with_name("plugins")
_GUNICORN = """wsgi_app = {application!r}
bind = "fd://{fd}"
workers = 1
threads = {threads}
timeout = 180
graceful_timeout = 2
control_socket_disable = True
"""
# nova keeps both in its database; as templates, they let a copy be used elsewhere.
_BROKER = "{scheme}://{username}:{password}@{hostname}:{port}/{path}"
_DATABASE = "{scheme}://{username}@{hostname}/%s?{query}"


def environment(place: Place) -> dict[str, str]:
    """Return the environment with which every service finds its files."""
    etc = str(place.folder / "etc")
    return {
        "PATH": f"{place.venv / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(PLUGINS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true",
        "OS_KEYSTONE_CONFIG_FILES": f"{etc}/keystone.conf",
        "OS_PLACEMENT_CONFIG_DIR": etc,
        "OS_GLANCE_CONFIG_DIR": etc,
        "OS_NEUTRON_CONFIG_DIR": etc,
        "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
        "OS_NOVA_CONFIG_DIR": etc,
        "OS_NOVA_CONFIG_FILES": f"{place.venv}/etc/nova/api-paste.ini;{etc}/nova.conf",
        "OS_BLAZAR_CONFIG_DIR": etc,
    }


def migrate(place: Place, processes: Processes) -> None:
    """Create every schema's tables; the schemas exist and are empty."""
    for folder in ("tokens", "credentials"):
        keys = place.folder / "state" / "keystone" / folder
        keys.mkdir(parents=True, exist_ok=True)
        keys.chmod(0o700)
    # Two at a time and the longest first: each is a single process that never waits.
    lanes = (_nova, _neutron, _keystone, _blazar, _glance, _placement)
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(lane, place, processes) for lane in lanes]
    for each in done:
        each.result()


def start_api(place: Place, processes: Processes, service: str, listener: socket) -> None:
    """Start one service's API on a listening socket."""
    path = place.folder / "etc" / f"gunicorn-{service}.py"
    fd = listener.fileno()
    # Two parallel claims overbooked a host (SQLAlchemy 2.1, MariaDB): use one thread.
    threads = 1 if service == "placement" else 12
    path.write_text(_GUNICORN.format(application=APPLICATIONS[service], fd=fd, threads=threads))
    # oslo.config reads its host program's arguments, so gunicorn's arguments use the environment.
    processes.start(
        service,
        [str(place.venv / "bin" / "gunicorn")],
        environment={**environment(place), "GUNICORN_CMD_ARGS": f"-c {path}"},
        pass_fds=(fd,),
    )


def answers(place: Place, service: str) -> bool:
    """Return True if an API answers at all (to a call without a token)."""
    with requests.Session() as http:
        http.trust_env = False
        try:
            return http.get(f"{place.url(service)}/", timeout=60.0).status_code < 500
        except requests.RequestException:
            return False


def start_workers(place: Place, processes: Processes, hosts: Sequence[Host]) -> None:
    """Start processes without an API: conductor, scheduler, all computes, blazar's manager."""
    etc = place.folder / "etc"
    own = environment(place)
    for name in ("nova-conductor", "nova-scheduler"):
        command = [str(place.venv / "bin" / name), "--config-file", str(etc / "nova.conf")]
        processes.start(name, command, environment=own)
    files = [str(etc / f"{host.name}.conf") for host in hosts]
    program = str(PLUGINS / "hotbed_computes.py")
    command = [str(place.venv / "bin" / "python"), program, *files, "--"]
    command.append(str(etc / "nova-compute.conf"))
    processes.start("nova-computes", command, environment=own)
    command = [
        str(place.venv / "bin" / "blazar-manager"),
        "--config-file",
        str(etc / "blazar.conf"),
    ]
    processes.start("blazar-manager", command, environment=own)


def discover(place: Place, processes: Processes) -> None:
    """Let nova find the hosts with computes that have reported."""
    _nova_manage(place, processes, "cell_v2", "discover_hosts")


def moved(urls: Mapping[str, Mapping[str, str]]) -> str:
    """Return SQL that gives keystone the current addresses of the services. `urls`: interface ->
    service type -> address, with its path."""
    return "".join(
        "update keystone.endpoint join keystone.service on endpoint.service_id = service.id "
        f"set endpoint.url = '{url}' "
        f"where service.type = '{service}' and endpoint.interface = '{interface}';\n"
        for interface, addresses in urls.items()
        for service, url in addresses.items()
    )


def _me() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _group() -> str:
    return grp.getgrgid(os.getegid()).gr_name


def _tool(place: Place, processes: Processes, name: str, *arguments: str) -> None:
    program = str(place.venv / "bin" / name.partition(" ")[0])
    processes.run(name, [program, *arguments], environment=environment(place))


def _keystone(place: Place, processes: Processes) -> None:
    config = ("--config-file", str(place.folder / "etc" / "keystone.conf"))
    _tool(place, processes, "keystone-manage db", *config, "db_sync")
    owner = ("--keystone-user", _me(), "--keystone-group", _group())
    _tool(place, processes, "keystone-manage fernet", *config, "fernet_setup", *owner)
    _tool(place, processes, "keystone-manage credential", *config, "credential_setup", *owner)
    bootstrap = ["bootstrap", "--bootstrap-password", SECRET, "--bootstrap-region-id", REGION]
    for interface in ("public", "internal", "admin"):
        bootstrap += [f"--bootstrap-{interface}-url", f"{place.url('identity')}/v3"]
    _tool(place, processes, "keystone-manage bootstrap", *config, *bootstrap)


def _placement(place: Place, processes: Processes) -> None:
    config = ("--config-file", str(place.folder / "etc" / "placement.conf"))
    _tool(place, processes, "placement-manage", *config, "db", "sync")


def _glance(place: Place, processes: Processes) -> None:
    config = ("--config-file", str(place.folder / "etc" / "glance-api.conf"))
    _tool(place, processes, "glance-manage", *config, "db_sync")


def _neutron(place: Place, processes: Processes) -> None:
    config = ("--config-file", str(place.folder / "etc" / "neutron.conf"))
    _tool(place, processes, "neutron-db-manage", *config, "upgrade", "heads")


def _nova(place: Place, processes: Processes) -> None:
    _nova_manage(place, processes, "api_db", "sync")
    cell0 = ("--database_connection", _DATABASE % "nova_cell0")
    _nova_manage(place, processes, "cell_v2", "map_cell0", *cell0)
    cell1 = ("--transport-url", _BROKER, "--database_connection", _DATABASE % "nova")
    _nova_manage(place, processes, "cell_v2", "create_cell", "--name", "cell1", *cell1)
    _nova_manage(place, processes, "db", "sync")


def _nova_manage(place: Place, processes: Processes, *arguments: str) -> None:
    config = ("--config-file", str(place.folder / "etc" / "nova.conf"))
    _tool(place, processes, f"nova-manage {' '.join(arguments[:2])}", *config, *arguments)


def _blazar(place: Place, processes: Processes) -> None:
    config = ("--config-file", str(place.folder / "etc" / "blazar.conf"))
    _tool(place, processes, "blazar-db-manage", *config, "upgrade", "head")
