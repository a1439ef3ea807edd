"""What the kernel has, found by reading: no module is loaded for it."""

from __future__ import annotations

import gzip
import os
import re
from typing import Any

from testbed.sites.inventory.hostside.base import Machine

OPTIONS = {
    "dm_mod": "CONFIG_BLK_DEV_DM",
    "xfs": "CONFIG_XFS_FS",
    "nf_tables": "CONFIG_NF_TABLES",
    "sch_htb": "CONFIG_NET_SCH_HTB",
    "sch_tbf": "CONFIG_NET_SCH_TBF",
    "cls_u32": "CONFIG_NET_CLS_U32",
}
"""Modules that some store or deployer needs, and the options that a kernel is built with."""


def features(machine: Machine) -> dict[str, Any]:
    """``container`` as systemd calls it ("" for none), and ``modules``: whether each of `OPTIONS`
    is there or can be loaded; None where nothing tells.
    """
    kind = machine.run(["systemd-detect-virt", "--container"]).strip()
    return {
        "container": "" if kind == "none" else kind,
        "modules": {name: _has(machine, name) for name in OPTIONS},
    }


def _has(machine: Machine, name: str) -> bool | None:
    if _is_there(machine, name):
        return True
    release = os.uname().release
    folder = f"lib/modules/{release}"
    listed = [machine.text(f"{folder}/modules.{kind}") for kind in ("builtin", "dep")]
    file = name.replace("_", "[-_]")
    if any(re.search(rf"^\S*\b{file}\.ko", text, re.MULTILINE) for text in listed):
        return True
    config = machine.text(f"boot/config-{release}") or _config(machine)
    built = re.search(rf"^{OPTIONS[name]}=([ym])$", config, re.MULTILINE)
    if built is not None and built.group(1) == "y":
        return True
    if any(listed) or (config and built is None):
        return False
    return None  # a module of a host whose modules are not to be seen from here, or no word of it


def _is_there(machine: Machine, name: str) -> bool:
    """Whether it works now."""
    loaded = re.search(rf"^{name} ", machine.text("proc/modules"), re.MULTILINE)
    return (
        loaded is not None
        or machine.path(f"sys/module/{name}").exists()
        or (name == "dm_mod" and " device-mapper" in machine.text("proc/misc"))
        or (name == "xfs" and "\txfs\n" in machine.text("proc/filesystems"))
    )


def _config(machine: Machine) -> str:
    try:
        return gzip.decompress(machine.path("proc/config.gz").read_bytes()).decode()
    except (OSError, EOFError):
        return ""
