"""Variables of the role swift and of the admin node, the secrets, and the archive of Swift.

The archive holds Swift and its dependencies: it is made on this machine from the hash-locked
requirements, then copied to the nodes, which need no access to a package index. It is the content
of a site-packages folder for the nodes' Python, with byte code made on the admin node, and is made
once for each lock file and version of Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.durable import make_folder, write_file
from schemas.errors import UserError
from schemas.locks import held
from testbed.deploy.parts import cache_folder, no_device
from testbed.deploy.ports import SWIFT_STEP
from testbed.reach import shell_to
from testbed.sites.contract import Node, Testbed
from testbed.spec import SIZE_SLACK, SwiftSpec, TestbedSpec
from testbed.spec.stores import TOGETHER, members
from testbed.ssh import Shell

_ROLE = Path(__file__).resolve().parents[2] / "playbooks/roles/swift"
PACKAGES_LOCK = _ROLE / "files/requirements.lock"
PYTHON = "import platform, sys; print(*sys.version_info[:2], sep='.', end='-'); "
PYTHON += "print(platform.machine())"
"""Program that prints a node's platform. The role refuses nodes with another one."""
_TIMEOUT_S, _ANSWER_S = 600.0, 20.0
_RECIPE = "2"  # of the archive: another recipe makes another archive
_COMPILE = """
folder=$(mktemp -d -p /var/tmp); trap 'rm -rf "$folder"' EXIT; cd "$folder"
tar -xf -
python3 -m compileall -q . >/dev/null || true  # a file of a package may be of another Python
tar --owner=0 --group=0 -cf - .
"""
"""Script that adds byte code to an archive, once and by the nodes' own Python. The servers' user
may not write byte code: each server would compile at every start."""


@dataclass(frozen=True)
class Packages:
    """An archive, the SHA-256 (hex, 16 digits) of its sources, and its platform, such as
    ``3.11-x86_64``."""

    archive: Path
    digest: str
    platform: str


def ensure_packages(testbed: Testbed) -> Packages:
    """Return the archive for `PACKAGES_LOCK` and the admin node's Python; make it first if it is
    not cached (half a minute). UserError: the packages cannot be downloaded; the message ends with
    the installer's output. RemoteError: the node does not answer."""
    shell = shell_to(testbed, testbed.admin)
    platform = shell.run(["python3", "-c", PYTHON], timeout_s=_ANSWER_S).text.strip()
    python, _, machine = platform.partition("-")
    recipe = f"{_RECIPE}\n{python}\n{machine}\n{PACKAGES_LOCK.read_text()}"
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    folder = cache_folder("swift")
    archive = folder / f"swift-{digest}.tar"
    if not archive.exists():
        with held(folder / ".lock"):
            if not archive.exists():
                _make(folder, archive, python, machine, shell)
    return Packages(archive, digest, platform)


def _make(folder: Path, archive: Path, python: str, machine: str, shell: Shell) -> None:
    for leftover in folder.glob(".making-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = folder / f".making-{os.getpid()}"
    site = work / "site"
    try:
        site.mkdir(parents=True)
        _install(site, python, machine)
        new = work / archive.name
        with tarfile.open(new, "w") as tar:
            tar.add(site, ".", filter=_anonymous)
        compile_there = ["sh", "-euc", _COMPILE]
        compiled = shell.run(compile_there, input=new.read_bytes(), timeout_s=_TIMEOUT_S)
        new.write_bytes(compiled.stdout)
        new.rename(archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _install(site: Path, python: str, machine: str) -> None:
    """Install wheels for the nodes' Python, by uv if `make setup` installed it, else by pip."""
    uv = Path(sys.executable).with_name("uv")
    common = ["--target", str(site), "--python-version", python, "--only-binary", ":all:"]
    common += ["--require-hashes", "--no-deps", "-r", str(PACKAGES_LOCK)]
    if uv.is_file():
        command = [str(uv), "pip", "install", "--quiet", "--no-config", *common]
        command += ["--python-platform", f"{machine}-manylinux_2_36"]
    else:
        command = [sys.executable, "-m", "pip", "install", "--quiet", *common]
        for tag in ("manylinux_2_17", "manylinux_2_28", "manylinux_2_34", "manylinux2014"):
            command += ["--platform", f"{tag}_{machine}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"Swift's packages could not be downloaded within {_TIMEOUT_S:g} s",
            do="look whether this machine reaches its package index",
        ) from error
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise UserError(f"Swift's packages could not be downloaded: {words[-1].strip()[:300]}")


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


SECRETS = "swift-secrets.json"
"""File in the testbed's folder, private to its owner: hash prefix and suffix, tenants' keys."""
_SECRET_BYTES = 24


def variables_of(
    testbed: Testbed,
    spec: TestbedSpec,
    store: SwiftSpec,
    packages: Callable[[Testbed], Packages] = ensure_packages,
) -> dict[str, Any]:
    """Return the variables of all nodes. Secrets appear only as names of files, never as values.
    `packages`: makes the archive of Swift's packages if it is not cached. UserError: Swift's
    packages are not available."""
    found = packages(testbed)
    return {
        "swift_packages": str(found.archive),
        "swift_packages_digest": found.digest,
        "swift_packages_for": found.platform,
        "swift_secrets": str(secrets_of(testbed, store)),
        "swift_wipe": "{{ validate_wipe | default(false) }}",
        "swift_cluster": cluster_of(testbed, spec, store),
    }


def hosts_of(testbed: Testbed, spec: TestbedSpec) -> dict[str, dict[str, Any]]:
    """Return the variables of each storage node: its disks. UserError: its site names no device."""
    sizes = {
        name: group.disk.size - group.disk.scratch
        for group in spec.groups
        if group.disk is not None
        for name in group.node_names()
    }
    return {
        node.name: {
            "hotbed_swift_disks": disks_of(node),
            "swift_disk_min_bytes": int(sizes.get(node.name, 0) * SIZE_SLACK),
        }
        for node in testbed.with_role("storage")
    }


def disks_of(node: Node) -> list[dict[str, str]]:
    """Return the name, device and mount point of each disk of a storage node."""
    if not node.osd_devices:
        raise no_device(node, "storage")
    return [
        {"name": f"d{place}", "device": device} for place, device in enumerate(node.osd_devices)
    ]


def cluster_of(testbed: Testbed, spec: TestbedSpec, store: SwiftSpec) -> dict[str, Any]:
    """Return the admin node's description of Swift (`testbed.stores.swift.cluster`): network in
    bytes a second, nodes by name."""
    groups = {group.name: group.node_names() for group in spec.groups}
    microstores: dict[str, dict[str, Any]] = {
        microstore.name: {
            "proxies": list(members(microstore.proxies, groups, "proxies")),
            "storage": list(members(microstore.storage, groups, "storage")),
            "port": store.storage_port + SWIFT_STEP * place,
        }
        for place, microstore in enumerate(store.microstores)
    }
    machine = store.pool.machine
    named = {node for body in microstores.values() for node in body["proxies"]}
    proxies = [node.name for node in testbed.with_role("proxy")]
    return {
        "microstores": microstores,
        "tenants": {tenant.name: tenant.microstore for tenant in store.tenants},
        "pool": {
            "total": _resources(store.pool),
            "step": _resources(store.pool.step),
            "machine": _resources(machine) if machine is not None else None,
        },
        "layouts": {name: _layout(store, microstores, name) for name in store.layout_names()},
        "layout": store.layout,
        "replicas": store.replicas,
        "part_power": store.part_power,
        "workers": store.proxy_workers,
        "s3": store.s3,
        "port": store.port,
        "disks": {
            node.name: [disk["name"] for disk in disks_of(node)]
            for node in testbed.with_role("storage")
        },
        "clients": [node.name for node in testbed.with_role("client")],
        "spare_proxies": [name for name in proxies if name not in named] if machine else [],
    }


def _layout(
    store: SwiftSpec, microstores: dict[str, dict[str, Any]], layout: str
) -> dict[str, Any]:
    cores, storage = store.shares(layout, "proxy_cores"), store.shares(layout, "storage_cores")
    network = store.shares(layout, "network")
    return {
        "microstores": {
            name: {
                "proxy_cores": round(cores[name], 6),
                "storage_cores": round(storage[name], 6),
                "network": network[name] / 8,
            }
            for name in microstores
        },
        "tenants": {
            tenant.name: [
                name
                for name, body in microstores.items()
                if name == tenant.microstore
                or (
                    layout == TOGETHER
                    and body["storage"] == microstores[tenant.microstore]["storage"]
                )
            ]
            for tenant in store.tenants
        },
    }


def _resources(share: Any) -> dict[str, float]:
    return {
        "proxy_cores": share.proxy_cores or 0.0,
        "storage_cores": share.storage_cores or 0.0,
        "network": (share.network or 0.0) / 8,
    }


def secrets_of(testbed: Testbed, store: SwiftSpec) -> Path:
    """Return the file with the testbed's secrets; make it, or add keys of new tenants, if needed.
    Existing keys stay, because clients hold them."""
    path = testbed.directory / SECRETS
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    wanted = {name: found.get(name) or _secret() for name in ("prefix", "suffix")}
    keys = found.get("keys", {})
    wanted["keys"] = {tenant.name: keys.get(tenant.name) or _secret() for tenant in store.tenants}
    if wanted != found:
        make_folder(path.parent)
        write_file(path, json.dumps(wanted), 0o600)
    return path


def _secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)
