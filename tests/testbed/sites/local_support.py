"""Shared parts of the local site's tests: a small spec, their own state folder, and a check of the
machine for leftovers.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from testbed import reach
from testbed.sites.contract import Testbed
from testbed.sites.local import LocalSite, network, quota_slice
from testbed.sites.local.cgroups import detect
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import alive, mounts_under, run, wait_until
from testbed.spec import TestbedSpec
from testbed.ssh import SshShell

STATE = Path("/var/lib/hotbed-tests")
"""State folder of the tests. Names on the machine carry its tag, so that tests neither touch nor
see a testbed in use."""

SMALL = """
name: small
store: null
groups:
  - {name: admin, roles: [admin, client], cpus: 1.0, memory: 512MiB, network: 1Gbit}
  - name: osd
    count: 2
    roles: [osd]
    cpus: 0.5
    memory: 512MiB
    network: 200Mbit
    root_size: 256MiB
    disk: {size: 1GiB, scratch: 384MiB, positioning: 4ms, bandwidth: 40MB/s, queue_depth: 16}
"""

RACKED = """
name: racked
store: null
racks: {count: 2, uplink: 40Mbit}
groups:
  - {name: admin, roles: [admin, client], cpus: 1.0, memory: 512MiB, network: 1Gbit}
  - name: osd
    count: 3
    roles: [osd]
    cpus: 0.5
    memory: 512MiB
    network: 1Gbit
    disk: {size: 1GiB, scratch: 0, positioning: 4ms, bandwidth: 40MB/s, queue_depth: 16}
    disks: 2
"""


def small_spec() -> TestbedSpec:
    import yaml

    return TestbedSpec.model_validate(yaml.safe_load(SMALL))


def racked_spec() -> TestbedSpec:
    import yaml

    return TestbedSpec.model_validate(yaml.safe_load(RACKED))


def places() -> LocalNames:
    return LocalNames(STATE, LocalNames.of_environment().cache)


def local_site() -> LocalSite:
    return LocalSite(places=places())


def shell(testbed: Testbed, node: str) -> SshShell:
    return reach.shell_to(testbed, testbed.node(node))


def break_node(site: LocalSite, name: str, node: str, state: str) -> None:
    """Break a part of a node as an accident does; `Site.status` reports it as `state`."""
    here, nodes = site.places, site._nodes(name)
    switch, port = here.switch(name), here.port(node)
    actions: dict[str, Callable[[], object]] = {
        "stopped": lambda: nodes.clear(node),
        "node gone": lambda: kill(nodes.container(node).pid_file),
        "disk gone": lambda: kill(nodes.of(node) / "disk" / "pid"),
        "link gone": lambda: run("ip", "-n", switch, "link", "del", port),
        "link down": lambda: run("ip", "-n", here.netns(name, node), "link", "set", "eth0", "down"),
    }
    actions[state]()


def kill(pid_file: Path) -> None:
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(pid), 5.0)


def everything_on_the_machine() -> list[str]:
    """Return all traces of the tests' testbeds, found without the site's own code."""
    here = places()
    found = [f"netns {name}" for name in network.namespaces(here)]
    found += [f"link {name}" for name in network.uplinks(here)]
    found += [f"mount {point}" for point in mounts_under(STATE)]
    loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    found += [f"loop {line}" for line in loops.splitlines() if f"{STATE}/" in line]
    for tree in detect().trees():
        top = tree / here.cgroup
        if top.exists():
            found.append(f"cgroup {top}")
    if (quota_slice.CLAIMS / quota_slice._claim(here)).exists():
        found.append("a claim on the slice of CPU quotas")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
                root = str((entry / "root").readlink())
            except OSError:
                continue
            if f"{STATE}/".encode() in line or root.startswith(f"{STATE}/"):
                found.append(f"process {entry.name} {line[:80]!r}")
    found += [f"folder {path}" for path in (STATE / "testbeds").glob("*")]
    return found
