"""Verbs: versions of store and tools on the nodes, and the nodes' hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import RemoteError, StoreError
from testbed.agent.contract import AgentConfig
from testbed.agent.health import opened
from testbed.agent.reach import every, on_each, reach
from testbed.stores.swift.confs import VENV

# One shell for everything: an ssh session costs more than all commands.
_SCRIPT = r"""
echo "kernel $(uname -r)"
echo "machine $(uname -m)"
. /etc/os-release 2>/dev/null && echo "distribution $PRETTY_NAME"
echo "cpus $(nproc)"
echo "cpu_model $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
memory=$(( $(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) * 1024 ))
# A container sees the machine's; its own group's limit is in one of these (or is `max`).
for file in /opt/hotbed-site/cgroup/memory.max /sys/fs/cgroup/memory.max \
    /opt/hotbed-site/memory/memory.limit_in_bytes /sys/fs/cgroup/memory/memory.limit_in_bytes; do
    limit=$(cat "$file" 2>/dev/null) && [ "$limit" -lt "$memory" ] 2>/dev/null && memory=$limit
done
echo "memory_bytes $memory"
echo "fio $(fio --version 2>/dev/null | sed 's/^fio-//')"
echo "python3 $(python3 -c 'import platform; print(platform.python_version())' 2>/dev/null)"
echo "congestion_control $(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null)"
echo "quota_slice_us $(cat /proc/sys/kernel/sched_cfs_bandwidth_slice_us 2>/dev/null)"
echo "mtu $(ip -o link show 2>/dev/null |
    sed -n '/^[0-9]*: lo:/d; s/^[0-9]*: \([^:@]*\)[^:]*:.* mtu \([0-9]*\) .*/\1=\2/p' |
    sort | tr '\n' ' ')"
echo "packages $(dpkg-query -W -f '${Package}=${Version} ' ceph-common ceph-mgr ceph-mon ceph-osd \
    fio nfs-ganesha radosgw 2>/dev/null | sed 's/[^ ]*= //g')"
echo "systemd $(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([^ ]*\).*/\1/p')"
"""
_NUMBERS = ("cpus", "memory_bytes", "quota_slice_us")
_TOOLS = ("kernel", "fio", "python3")


def facts(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts by node: {} -> {kernel, distribution, cpus, memory_bytes, ..., roles, osds}.

    `congestion_control` is TCP's on the node, `mtu` the links' largest packets (``eth0=1500``),
    `memory_bytes` the memory that the node may use, `cpus` the processors on which it may run.
    `quota_slice_us` and `cpu_model` are the machine's. An unreachable node has {error} alone. A
    missing tool is absent."""
    found = on_each((node.name for node in config.nodes), lambda name: read_node(config, name))
    result: dict[str, Any] = {}
    for node in config.nodes:
        answer = found[node.name]
        if isinstance(answer, RemoteError):
            result[node.name] = {"error": str(answer)}
        else:
            known = {"roles": list(node.roles), "osds": list(node.osds), "signal": node.signal}
            result[node.name] = answer | known
    return result


def versions(config: AgentConfig, payload: Mapping[str, Any]) -> dict[str, str]:
    """Return versions: {} -> {ceph, nfs-ganesha or swift, kernel, fio, python3, packages}; several
    versions of one program are joined by commas. `packages` are ``name=version`` of the
    distribution's packages."""
    hosts = facts(config, payload)
    result: dict[str, str] = {}
    for tool in _TOOLS:
        values = {str(host[tool]) for host in hosts.values() if tool in host}
        if values:
            result[tool] = ",".join(sorted(values))
    packages = {word for host in hosts.values() for word in str(host.get("packages", "")).split()}
    if packages:
        result["packages"] = " ".join(sorted(packages))
    if config.store == "ceph":
        try:
            with opened(config) as store:
                daemons = store.connection.mon("versions").checked("versions")["overall"]
        except StoreError as error:
            raise StoreError(f"Ceph's version cannot be read: {error}") from error
        result["ceph"] = ",".join(sorted({text.split()[2] for text in daemons}))
    if config.store == "swift":
        program = [f"{VENV}/bin/python", "-c", "import swift; print(swift.__version__)"]
        result["swift"] = ",".join(_said(config, "proxy", program))
    if config.store == "nfs":
        words = (text.partition("=")[2] for text in _said(config, "nfs", ["ganesha.nfsd", "-v"]))
        result["nfs-ganesha"] = ",".join(word.strip().removeprefix("V") for word in words)
    return result


def _said(config: AgentConfig, role: str, argv: Sequence[str]) -> list[str]:
    """Return the different answers to a command on the nodes of a role, sorted."""
    names = [node.name for node in config.nodes if role in node.roles]
    found = every(names, lambda name: reach(config, name).run(argv).text.strip())
    return sorted(set(found.values()))


def read_node(config: AgentConfig, name: str) -> dict[str, Any]:
    """Return the facts of one node. Raises RemoteError."""
    return parse(reach(config, name).run(["sh", "-c", _SCRIPT], timeout_s=20.0).text)


def parse(text: str) -> dict[str, Any]:
    """Return facts from the script's lines ``name value``; empty values are left out."""
    result: dict[str, Any] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if value.strip():
            result[key] = int(value) if key in _NUMBERS else value.strip()
    return result
