"""What a spec's store and deployer need of a machine's kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from testbed.checks import Finding
from testbed.spec import CephSpec, NfsSpec, SwiftSpec, TestbedSpec

_CALLED = {"dm_mod": "device mapper (dm_mod)"}


def modules_of(spec: TestbedSpec, roles: Collection[str]) -> dict[str, str]:
    """Modules that a node with these roles needs, and what for."""
    store = spec.store
    if isinstance(store, CephSpec) and store.deployer.kind != "own" and "osd" in roles:
        return {"dm_mod": f"{store.deployer.kind} makes OSDs on LVM alone"}
    if isinstance(store, NfsSpec):
        why = "what clients and servers send is enforced"
        return dict.fromkeys(("nf_tables", "sch_htb", "cls_u32"), why)
    if isinstance(store, SwiftSpec):
        found = {"xfs": "Swift's disks are formatted with it"} if "storage" in roles else {}
        found |= {"sch_tbf": "a proxy's share is enforced"} if "proxy" in roles else {}
        return found | ({"nf_tables": "its back ends are closed to others"} if found else {})
    return {}


def in_containers(spec: TestbedSpec) -> bool:
    """Whether the deployer runs every daemon in a container."""
    return isinstance(spec.store, CephSpec) and spec.store.deployer.kind == "cephadm"


def findings(
    spec: TestbedSpec, roles: Collection[str], seen: Mapping[str, Any]
) -> Iterator[Finding]:
    """Judges `hostside.kernel.features`; nothing where store and deployer need nothing."""
    if in_containers(spec):
        inside = seen["container"]
        how = "take virtual machines or bare metal, or deployer own"
        what = "no container itself, for cephadm runs daemons in containers"
        yield Finding("container", what, not inside, inside or "none", how)
    needs = modules_of(spec, roles)
    if not needs:
        return
    modules = seen["modules"]
    lacking = [name for name in needs if modules[name] is False]
    untold = [name for name in needs if modules[name] is None]
    found = [f"no {_CALLED.get(name, name)}: {needs[name]}" for name in lacking]
    found += [f"nothing tells of {_CALLED.get(name, name)}" for name in untold]
    how = "boot a kernel with it (Debian's has all), or install its modules"
    if lacking == ["dm_mod"]:
        how += "; or choose deployer own"
    what = "kernel: " + ", ".join(_CALLED.get(name, name) for name in needs)
    told = "; ".join(found) or "there, or can be loaded"
    yield Finding("features", what, not found, told, how, needed=bool(lacking))
