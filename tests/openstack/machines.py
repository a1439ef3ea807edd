"""Machines behind the servers of nova's fake driver: nodes of the local site that answer at the
servers' fixed and floating addresses and follow cloud-init.

A watcher reads the cloud as its operator. An existing server becomes the machine of its name: the
machine gets the address, the host key, the user's key, and later the floating IP. When the servers
are gone, the machines lose their links and come back as new.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from testbed.sites.local import LocalSite
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import read_pid, run
from testbed.spec import TestbedSpec
from tests.openstack.rest import Refused, Rest
from tests.openstack.seed import FIXED, FLOATING

STATE = Path("/var/lib/hotbed-tests-machines")
"""State folder that differs from people's and other tests' folders."""
NAME = "metal"
NEW = "new"
_PAUSE_S = 1.0
_USER_DATA = "compute 2.3"  # first microversion that shows operators a server's user data

# Chameleon images have the user cc, who may become root. The nodes' image has no sudo, so cc is
# root here and `sudo` passes its command on.
_BECOME = r"""
set -eu
id cc >/dev/null 2>&1 || useradd --non-unique --uid 0 --gid 0 --create-home --shell /bin/bash cc
printf '#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n' > /usr/local/bin/sudo
chmod 755 /usr/local/bin/sudo
mkdir -p ~cc/.ssh
printf '%s\n' "$AUTHORIZED" > ~cc/.ssh/authorized_keys
chmod 700 ~cc/.ssh
umask 077
printf '%s' "$PRIVATE" > /etc/ssh/ssh_host_ed25519_key
printf '%s\n' "$PUBLIC" > /etc/ssh/ssh_host_ed25519_key.pub
printf '%s\n' "$HOSTNAME" > /etc/hostname
hostname "$HOSTNAME"
systemctl restart ssh
"""


class Machines:
    """See the module. `spec`: spec of the testbed to request; the names of its nodes assign the
    machines."""

    def __init__(self, spec: TestbedSpec) -> None:
        self._admin: Rest
        self._project = ""
        body = spec.model_dump(mode="json") | {"name": NAME, "site": {"kind": "local"}}
        self._spec = TestbedSpec.model_validate(body | {"store": None})
        self._places = LocalNames(STATE, LocalNames.of_environment().cache)
        self._site = LocalSite(places=self._places)
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._servers: dict[str, str] = {}  # machine -> its server
        self._floating: dict[str, str] = {}  # floating address -> its machine
        self._used: set[str] = set()
        self.trouble: BaseException | None = None

    def start(self) -> None:
        """Bring the machines up; call `stop` afterwards even if this fails."""
        self._site.release(NAME)
        self._site.provision(self._spec)
        self._site.snapshot(NAME, NEW)
        # Only the admin node, at its public address, is reachable from here.
        run("ip", "route", "replace", "unreachable", FIXED)
        run("ip", "route", "replace", FLOATING, "dev", self._places.uplink(NAME))

    def follow(self, admin: Rest, project: str) -> None:
        """Start to watch a cloud. `admin`: an operator of the cloud. `project`: id of the user's
        project; other projects' servers have no machines."""
        self._admin, self._project = admin, project
        self._watcher.start()

    def stop(self) -> None:
        """Remove everything; a second call does nothing."""
        self._stop.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        run("ip", "route", "del", "unreachable", FIXED, check=False)
        self._site.release(NAME)

    # -- inside ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            try:
                self._follow()
            except (Refused, requests.RequestException):
                continue  # the cloud is busy or closed an idle connection: repeat the request
            except BaseException as error:
                self.trouble = error
                raise

    def _follow(self) -> None:
        path = f"/servers/detail?all_tenants=1&project_id={self._project}"
        found = self._admin("compute", "GET", path, headers={"OpenStack-API-Version": _USER_DATA})[
            "servers"
        ]
        there = {each["id"]: each for each in found if each["status"] == "ACTIVE"}
        for machine, server in list(self._servers.items()):
            if server not in there:
                self._site.link(NAME, machine, False)
                del self._servers[machine]
        if self._used and not self._servers:
            self._site.restore(NAME, NEW)
            run("ip", "route", "replace", FLOATING, "dev", self._places.uplink(NAME))
            self._used.clear()
            self._floating.clear()
        for identity, server in there.items():
            machine = server["name"].rpartition("-")[2]
            if machine not in self._used and _address(server):
                self._become(machine, server)  # again after an earlier fault
                self._used.add(machine)
                self._servers[machine] = identity
        self._give_floating({_address(there[s]): m for m, s in self._servers.items()})

    def _become(self, machine: str, server: Mapping[str, Any]) -> None:
        """Apply cloud-init's actions at the first boot."""
        found = base64.b64decode(server["OS-EXT-SRV-ATTR:user_data"]).decode()
        config = json.loads(found.partition("\n")[2])
        name, user = server["key_name"], server["user_id"]
        keypair = self._admin(
            "compute",
            "GET",
            f"/os-keypairs/{name}?user_id={user}",
            headers={"OpenStack-API-Version": "compute 2.10"},
        )["keypair"]
        self._address(machine, "replace", f"{_address(server)}/24")
        variables = {
            "AUTHORIZED": keypair["public_key"].strip(),
            "PRIVATE": config["ssh_keys"]["ed25519_private"],
            "PUBLIC": config["ssh_keys"]["ed25519_public"],
            "HOSTNAME": config["hostname"],
        }
        enter = ["nsenter", f"--target={self._leader(machine)}", "--mount", "--uts", "--ipc"]
        enter += ["--net", "--pid", "--root", "--wd"]
        enter += ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
        run(*enter, *(f"{key}={value}" for key, value in variables.items()), "sh", "-c", _BECOME)

    def _give_floating(self, machines: Mapping[str, str]) -> None:
        found = self._admin.get("network", f"/v2.0/floatingips?project_id={self._project}")
        wanted = {
            each["floating_ip_address"]: machines[each["fixed_ip_address"]]
            for each in found["floatingips"]
            if each["fixed_ip_address"] in machines
        }
        for address, machine in set(self._floating.items()) - set(wanted.items()):
            self._address(machine, "del", f"{address}/32")
        for address, machine in set(wanted.items()) - set(self._floating.items()):
            self._address(machine, "replace", f"{address}/32")
        self._floating = wanted

    def _address(self, machine: str, action: str, address: str) -> None:
        netns = self._places.netns(NAME, machine)
        run("ip", "-n", netns, "addr", action, address, "dev", "eth0", check=action != "del")

    def _leader(self, machine: str) -> str:
        """Return the host's id of the machine's first process."""
        pid = read_pid(self._places.testbed(NAME) / "nodes" / machine / "nspawn.pid")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return children[0]


def _address(server: Mapping[str, Any]) -> str:
    """Return the server's fixed address; empty if it has none yet."""
    for network in server["addresses"].values():
        for each in network:
            if each["OS-EXT-IPS:type"] == "fixed":
                return str(each["addr"])
    return ""
