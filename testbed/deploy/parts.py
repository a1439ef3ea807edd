"""Parts of several stores' variables: programs and caches of this machine, devices of nodes."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.errors import BUILD, UserError
from testbed.sites.contract import Node

BINARIES = Path(__file__).resolve().parents[2] / "dataplane" / "bin"


def binary(name: str) -> str:
    """Return the path of a program that goes to the nodes. UserError: it is not built."""
    path = BINARIES / name
    if not path.is_file():
        raise UserError("the program is missing", where=path, do=BUILD)
    return str(path)


def cache_folder(name: str) -> Path:
    """Return the folder `name` for what is made once: in $HOTBED_CACHE, else the usual place."""
    usual = Path("/var/cache/hotbed")
    if os.geteuid() != 0:
        usual = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hotbed"
    return Path(os.environ.get("HOTBED_CACHE", usual)) / name


def scratch_device(node: Node, role: str) -> str:
    """Return the device for files of a store: the scratch part of the node's disk, or the disk.
    UserError: the node's site names no device."""
    device = node.devices.get("scratch") or next(iter(node.osd_devices), None)
    if device is None:
        raise no_device(node, role)
    return device


def no_device(node: Node, role: str) -> UserError:
    """Return the error of a node without a device."""
    return UserError(
        f"has the role {role} but its site names no device for the store",
        where=f"node {node.name}",
        do="give it one in the site's options",
    )
