"""A testbed's network: a bridge in its own namespace, a shaped link to every node, and an uplink
to the host.

The bridge is outside the host's namespace, so that a firewall or container engine on the host
neither filters nor routes packets between nodes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import math
import re
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from testbed.sites.contract import SiteError
from testbed.sites.local import priority
from testbed.sites.local.names import LocalNames
from testbed.sites.local.process import run
from testbed.spec import TestbedSpec
from testbed.spec.quantities import parse_bits_per_s
from testbed.stores.nfs.wire import ETHERNET_MTU

HOST = 1
FIRST_NODE = 10
MOST_NODES = 240
CORE = "br0"
"""Bridge of nodes in no rack, and of all nodes in a flat network."""
CONGESTION_CONTROL = "reno"
"""Congestion control of nodes if the spec names none. Every kernel has it, so results do not depend
on the choice of the host's own connections."""
_UP = "up0"
_LATENCY_US = 25_000
_SETTINGS = Path("/proc/sys/net/ipv4")
CHOOSING = "subnet"
"""Lock held from the choice of a network until its route exists; other state folders see only the
route."""


def choose_subnet(taken: set[int]) -> int:
    """Return the smallest k with 10.77.k.0/24 neither in `taken` nor routed on this host."""
    routed = []
    for route in json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]"):
        if "dst" in route and route["dst"] != "default":
            routed.append(ipaddress.ip_network(route["dst"], strict=False))
    for k in range(256):
        net = ipaddress.ip_network(f"10.77.{k}.0/24")
        if k not in taken and not any(net.overlaps(other) for other in routed):
            return k
    raise SiteError("no free network 10.77.k.0/24 is left: take a testbed down")


def address(subnet: int, index: int) -> str:
    """Return the address of the node with this index; the first index is 0."""
    return f"10.77.{subnet}.{FIRST_NODE + index}"


def namespaces(places: LocalNames, name: str | None = None) -> list[str]:
    """Return the network namespaces of a testbed, or of all testbeds."""
    listed = run("ip", "netns", "list", check=False).splitlines()
    names = [line.split()[0] for line in listed if line.strip()]
    return [netns for netns in names if netns.startswith(places.netns_prefix(name))]


def uplinks(places: LocalNames) -> list[str]:
    """Return the host's ends of all testbeds' uplinks."""
    links = json.loads(run("ip", "-j", "link", "show", check=False) or "[]")
    return [link["ifname"] for link in links if link["ifname"].startswith(places.uplink_prefix())]


def congestion_control_of(spec: TestbedSpec) -> str:
    """Return the congestion control of the nodes' TCP."""
    return (spec.network and spec.network.congestion_control) or CONGESTION_CONTROL


def check_congestion_control(name: str, settings: Path = _SETTINGS) -> None:
    """Raise an error unless a namespace of this machine may use a congestion control. UserError:
    the kernel lacks it, or allows it only outside of namespaces."""
    try:
        allowed, there = (
            (settings / f"tcp_{which}_congestion_control").read_text().split()
            for which in ("allowed", "available")
        )
    except OSError:
        return  # this machine cannot run testbeds; doctor reports it
    if name in allowed:
        return
    others = f"or write network.congestion_control: {' or '.join(allowed)}"
    if name not in there:
        raise UserError(
            f"this machine's kernel has no {name!r}",
            where="network.congestion_control",
            do=f"load it (modprobe tcp_{name}) and allow it, {others}",
        )
    raise UserError(
        f"this machine does not allow {name!r} in network namespaces",
        where="network.congestion_control",
        do=(
            "add it (sysctl "
            f"net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'), {others}"
        ),
    )


def make_switch(places: LocalNames, name: str, subnet: int, *, mtu: int = ETHERNET_MTU) -> None:
    """Make the bridge and the host's link to it, unless they exist. `mtu`: MTU of all of the
    testbed's links, in bytes."""
    switch, uplink = places.switch(name), places.uplink(name)
    if switch not in namespaces(places, name):
        run("ip", "netns", "add", switch)
    inside = {link["ifname"] for link in json.loads(run("ip", "-n", switch, "-j", "link"))}
    if CORE not in inside:
        batch(
            switch,
            f"link add {CORE} type bridge forward_delay 0",
            "link set lo up",
        )
    if uplink not in uplinks(places):
        run("ip", "link", "add", uplink, "type", "veth", "peer", "name", _UP, "netns", switch)
    # A bridge without its own MTU takes its ports' smallest and drops larger packets.
    batch(
        switch,
        f"link set {CORE} mtu {mtu} up",
        f"link set {_UP} mtu {mtu}",
        f"link set {_UP} master {CORE} up",
    )
    run("ip", "addr", "replace", f"10.77.{subnet}.{HOST}/24", "dev", uplink)
    run("ip", "link", "set", uplink, "mtu", str(mtu), "up")


def make_link(
    places: LocalNames,
    name: str,
    node: str,
    where: str,
    bits_per_s: float,
    *,
    bridge: str = CORE,
    levels: int = 0,
    mtu: int = ETHERNET_MTU,
    congestion_control: str = CONGESTION_CONTROL,
) -> None:
    """Make a node's namespace and link; replace them if any part exists. `where`: the node's
    address. `bits_per_s`: rate of the link, enforced at both of its ends. `bridge`: the bridge that
    the link joins: the core or a rack's (see `racks`). `levels`: see `set_rate`. `mtu`: the largest
    packet of the link, in bytes. `congestion_control`: the algorithm of the node's TCP."""
    netns, switch, port = places.netns(name, node), places.switch(name), places.port(node)
    drop_link(places, name, node)
    run("ip", "netns", "add", netns)
    # Before the first process: a server's connections keep the setting of its listen call.
    setting = str(_SETTINGS / "tcp_congestion_control")
    run("ip", "netns", "exec", netns, "tee", setting, text=f"{congestion_control}\n")
    run("ip", "-n", netns, "link", "add", "eth0", "type", "veth", "peer", port, "netns", switch)
    batch(
        netns,
        f"link set eth0 mtu {mtu}",
        f"link set eth0 address {hardware_address(name, node)}",
    )
    raise_link(places, name, node, where)
    batch(switch, f"link set {port} mtu {mtu}", f"link set {port} master {bridge} up")
    if levels:
        # Priority and buckets act on whole packets; a 64 KiB segment takes 40 frames' time.
        batch(netns, "link set eth0 gso_max_segs 1")
        batch(switch, f"link set {port} gso_max_segs 1")
    set_rate(places, name, node, bits_per_s, levels=levels, mtu=mtu)


def hardware_address(name: str, node: str) -> str:
    """Return the node's permanent hardware address. Other nodes and the host remember it over a
    restart; after a change they could not reach the node for half a minute.
    """
    digest = hashlib.sha256(f"{name}/{node}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def drop_link(places: LocalNames, name: str, node: str) -> None:
    """Remove a node's namespace and its link."""
    netns, switch = places.netns(name, node), places.switch(name)
    # A dying process may keep the namespace for a moment, so the link is removed first.
    run("ip", "-n", switch, "link", "del", places.port(node), check=False)
    run("ip", "netns", "del", netns, check=False)


def set_rate(
    places: LocalNames,
    name: str,
    node: str,
    bits_per_s: float | None,
    *,
    levels: int = 0,
    mtu: int = ETHERNET_MTU,
) -> None:
    """Shape both directions of a node's link; None: unshaped. `levels`: number of DSCP levels that
    the switch's port serves by strict priority (`priority`); the node itself orders the packets
    that it sends. `mtu`: the largest packet of the link, in bytes."""
    shape(places.netns(name, node), "eth0", bits_per_s)
    shape(places.switch(name), places.port(node), bits_per_s, levels=levels, mtu=mtu)


def shape(
    netns: str,
    device: str,
    bits_per_s: float | None,
    *,
    levels: int = 0,
    mtu: int = ETHERNET_MTU,
) -> None:
    """Limit the rate at which packets leave a device, with `levels` of priority; None: no limit."""
    if bits_per_s is None:
        run("tc", "-n", netns, "qdisc", "del", "dev", device, "root", check=False)
    elif levels:
        # tc would keep a root of the same kind, with everything below it.
        run("tc", "-n", netns, "qdisc", "del", "dev", device, "root", check=False)
        lines = "\n".join(priority.commands(device, bits_per_s, levels, mtu)) + "\n"
        run("tc", "-n", netns, "-batch", "-", text=lines)
    else:
        bucket = token_bucket(bits_per_s)
        run("tc", "-n", netns, "qdisc", "replace", "dev", device, "root", *bucket)


def has_netem(switch: str) -> bool:
    """Return True if the kernel can delay and lose packets: try it where no packet passes."""
    run("tc", "-n", switch, "qdisc", "add", "dev", "lo", "root", "netem", check=False)
    there = queueing(switch).get("lo", [])
    run("tc", "-n", switch, "qdisc", "del", "dev", "lo", "root", check=False)
    return any(each["kind"] == "netem" for each in there)


def impair(
    places: LocalNames, name: str, node: str, *, rate: float, delay: float, loss: float
) -> None:
    """Delay packets (s) and lose a share of them in both directions of a node's link."""
    words = f"netem limit 10000 rate {rate:.0f}bit delay {1e6 * delay:.0f}us loss {100 * loss:g}%"
    ends = {places.netns(name, node): "eth0", places.switch(name): places.port(node)}
    for netns, device in ends.items():
        shape(netns, device, None)
        run("tc", "-n", netns, "qdisc", "add", "dev", device, "root", *words.split())


Queueing = list[dict[str, Any]]


def queueing(netns: str) -> dict[str, Queueing]:
    """Return the queueing disciplines of each device of a namespace, as tc shows them."""
    found: dict[str, Queueing] = {}
    for qdisc in json.loads(run("tc", "-n", netns, "-j", "qdisc", "show") or "[]"):
        found.setdefault(qdisc["dev"], []).append(qdisc)
    return found


def rate_of(
    netns: str, device: str, there: Queueing, bits_per_s: float, levels: int = 0
) -> float | str:
    """Return the rate limit (bits/s) of a device. If its queueing differs from what `shape` makes
    for `bits_per_s` and `levels`, return the queueing in words."""
    kinds = ", ".join(sorted({qdisc["kind"] for qdisc in there})) or "nothing"
    if levels and kinds == "bfifo, htb":
        shown = run("tc", "-n", netns, "class", "show", "dev", device, "classid", priority.WHOLE)
        rate = re.search(r" rate (\S+)", shown)
        return parse_bits_per_s(rate[1].replace("K", "k")) if rate else kinds
    if levels or kinds != "tbf":
        return kinds
    options = there[0]["options"]
    found, burst, latency = 8.0 * float(options["rate"]), options["burst"], options["lat"]
    bursts = (_burst(bits_per_s), _burst(found))
    as_made = any(math.isclose(burst, each, rel_tol=0.01) for each in bursts)
    if as_made and math.isclose(latency, _LATENCY_US, rel_tol=0.01):
        return found
    return f"{found:g} bits/s with a burst of {burst} bytes and {latency} us of queue"


def token_bucket(bits_per_s: float) -> list[str]:
    """Return the arguments of tc for a rate: a burst of 2 ms (at least one large segment, and so a
    packet of any MTU), 25 ms of queue."""
    rate, burst = f"{round(bits_per_s)}bit", str(_burst(bits_per_s))
    return ["tbf", "rate", rate, "burst", burst, "latency", f"{_LATENCY_US}us"]


def _burst(bits_per_s: float) -> int:
    return max(round(bits_per_s / 8 * 0.002), 96 * 1024)


def ports(places: LocalNames, name: str) -> dict[str, bool]:
    """Return the links of the testbed's switch by name; True if both ends of the link are up."""
    links = json.loads(run("ip", "-n", places.switch(name), "-j", "link", check=False) or "[]")
    return {link["ifname"]: {"UP", "LOWER_UP"} <= {*link["flags"]} for link in links}


def raise_link(places: LocalNames, name: str, node: str, where: str) -> None:
    """Raise both ends of a node's link; `where` is the node's address."""
    netns = places.netns(name, node)
    batch(netns, f"addr replace {where}/24 dev eth0", "link set eth0 up", "link set lo up")
    set_link(places, name, node, True)


def set_link(places: LocalNames, name: str, node: str, up: bool) -> None:
    """Cut or restore a node's link at the switch."""
    state = "up" if up else "down"
    run("ip", "-n", places.switch(name), "link", "set", places.port(node), state)


def remove(places: LocalNames, name: str) -> None:
    """Remove every namespace and the uplink of a testbed."""
    remove_uplink(places.uplink(name))
    for netns in namespaces(places, name):
        run("ip", "netns", "del", netns, check=False)


def batch(netns: str, *commands: str) -> None:
    """Run several commands of `ip` in a namespace in one call, up to the first failure."""
    run("ip", "-n", netns, "-batch", "-", text="\n".join(commands) + "\n")


def remove_uplink(link: str) -> None:
    """Remove a host's end of an uplink, and with it the other end."""
    run("ip", "link", "del", link, check=False)
