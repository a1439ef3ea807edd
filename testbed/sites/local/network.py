"""A testbed's network: a bridge in a namespace of its own, a shaped link to every node, and an
uplink to the host.

The bridge is kept out of the host's namespace, so that a firewall or container engine on the host
neither filters nor routes what nodes say to each other.
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
from testbed.nfs_wire import ETHERNET_MTU
from testbed.quantities import parse_bits_per_s
from testbed.sites.contract import SiteError
from testbed.sites.local import priority
from testbed.sites.local.names import Places
from testbed.sites.local.tools import run
from testbed.spec import TestbedSpec

HOST = 1
FIRST_NODE = 10
MOST_NODES = 240
CORE = "br0"
"""The bridge of nodes in no rack, and of all where the network is flat."""
CONGESTION_CONTROL = "reno"
"""Of nodes whose spec names none: every kernel has it, and results do not hang on what the host's
own connections use."""
_UP = "up0"
_LATENCY_US = 25_000
_SETTINGS = Path("/proc/sys/net/ipv4")
CHOOSING = "subnet"
"""Lock from the choice of a network until its route is there, which is all that another state
folder sees of it."""


def choose_subnet(taken: set[int]) -> int:
    """The smallest k for which 10.77.k.0/24 is neither in `taken` nor routed on this host."""
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
    """Address of the node with this index, 0 being the first."""
    return f"10.77.{subnet}.{FIRST_NODE + index}"


def namespaces(places: Places, name: str | None = None) -> list[str]:
    """Network namespaces of a testbed, or of all."""
    listed = run("ip", "netns", "list", check=False).splitlines()
    names = [line.split()[0] for line in listed if line.strip()]
    return [netns for netns in names if netns.startswith(places.netns_prefix(name))]


def uplinks(places: Places) -> list[str]:
    """The host's ends of all testbeds' uplinks."""
    links = json.loads(run("ip", "-j", "link", "show", check=False) or "[]")
    return [link["ifname"] for link in links if link["ifname"].startswith(places.uplink_prefix())]


def congestion_control_of(spec: TestbedSpec) -> str:
    """What TCP of the nodes uses."""
    return (spec.network and spec.network.congestion_control) or CONGESTION_CONTROL


def check_congestion_control(name: str, settings: Path = _SETTINGS) -> None:
    """Whether a namespace of this machine may use a congestion control.

    Raises:
        UserError: the kernel has not got it, or allows it outside of namespaces only.
    """
    try:
        allowed, there = (
            (settings / f"tcp_{which}_congestion_control").read_text().split()
            for which in ("allowed", "available")
        )
    except OSError:
        return  # no machine for testbeds: doctor says so
    if name in allowed:
        return
    others = f"or write network.congestion_control: {' or '.join(allowed)}"
    if name not in there:
        raise UserError(
            f"network.congestion_control: this machine's kernel has no {name!r}: load it (modprobe "
            f"tcp_{name}) and allow it, {others}."
        )
    raise UserError(
        f"network.congestion_control: this machine does not allow {name!r} in network namespaces: "
        f"add it (sysctl net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, name])}'), "
        f"{others}."
    )


def make_switch(places: Places, name: str, subnet: int, *, mtu: int = ETHERNET_MTU) -> None:
    """Make the bridge and the host's link to it; nothing when they are there.

    Args:
        mtu: of all of the testbed's links, bytes.
    """
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
    # A bridge whose MTU was never set takes the least of its ports' and drops what is larger.
    batch(
        switch,
        f"link set {CORE} mtu {mtu} up",
        f"link set {_UP} mtu {mtu}",
        f"link set {_UP} master {CORE} up",
    )
    run("ip", "addr", "replace", f"10.77.{subnet}.{HOST}/24", "dev", uplink)
    run("ip", "link", "set", uplink, "mtu", str(mtu), "up")


def make_link(
    places: Places,
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
    """Make a node's namespace and its link, anew when something of it is there.

    Args:
        where: the node's address.
        bits_per_s: rate of the link, enforced on both of its ends.
        bridge: what the link goes to: the core or a rack's (see `racks`).
        levels: see `set_rate`.
        mtu: the largest packet of the link, bytes.
        congestion_control: what TCP of the node uses.
    """
    netns, switch, port = places.netns(name, node), places.switch(name), places.port(node)
    drop_link(places, name, node)
    run("ip", "netns", "add", netns)
    # Before anything runs there: a server's connections use what was set when it began to listen.
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
        # Priority and buckets act on whole packets, and a segment of 64 KiB takes 40 frames' time.
        batch(netns, "link set eth0 gso_max_segs 1")
        batch(switch, f"link set {port} gso_max_segs 1")
    set_rate(places, name, node, bits_per_s, levels=levels, mtu=mtu)


def hardware_address(name: str, node: str) -> str:
    """The node's own for ever: the others and the host remember it over a restart of the node, and
    would talk to nobody for half a minute if it changed.
    """
    digest = hashlib.sha256(f"{name}/{node}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))


def drop_link(places: Places, name: str, node: str) -> None:
    """Remove a node's namespace with its link."""
    netns, switch = places.netns(name, node), places.switch(name)
    # The namespace may live on for a moment in a dying process: the link goes first.
    run("ip", "-n", switch, "link", "del", places.port(node), check=False)
    run("ip", "netns", "del", netns, check=False)


def set_rate(
    places: Places,
    name: str,
    node: str,
    bits_per_s: float | None,
    *,
    levels: int = 0,
    mtu: int = ETHERNET_MTU,
) -> None:
    """Shape both directions of a node's link; None: unshaped.

    Args:
        levels: the switch's port serves so many levels of DSCP by strict priority (`priority`);
            what the node sends is the node's own to order.
        mtu: the largest packet of the link, bytes.
    """
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
    """Limit what leaves by a device of a namespace; None: no limit. With `levels` of priority."""
    if bits_per_s is None:
        run("tc", "-n", netns, "qdisc", "del", "dev", device, "root", check=False)
    elif levels:
        # A root of the same kind would be kept, with all that is below it.
        run("tc", "-n", netns, "qdisc", "del", "dev", device, "root", check=False)
        lines = "\n".join(priority.commands(device, bits_per_s, levels, mtu)) + "\n"
        run("tc", "-n", netns, "-batch", "-", text=lines)
    else:
        bucket = token_bucket(bits_per_s)
        run("tc", "-n", netns, "qdisc", "replace", "dev", device, "root", *bucket)


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
    """Return the rate (bits/s) to which a device is limited; where its queueing is not as `shape`
    makes it for `bits_per_s` and `levels`, the queueing in words."""
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
    """Arguments of tc for a rate: a burst of 2 ms (one large segment at least, and so a packet of
    any MTU), 25 ms of queue."""
    rate, burst = f"{round(bits_per_s)}bit", str(_burst(bits_per_s))
    return ["tbf", "rate", rate, "burst", burst, "latency", f"{_LATENCY_US}us"]


def _burst(bits_per_s: float) -> int:
    return max(round(bits_per_s / 8 * 0.002), 96 * 1024)


def ports(places: Places, name: str) -> dict[str, bool]:
    """Links of the testbed's switch by name; True if both ends of the link are up."""
    links = json.loads(run("ip", "-n", places.switch(name), "-j", "link", check=False) or "[]")
    return {link["ifname"]: {"UP", "LOWER_UP"} <= {*link["flags"]} for link in links}


def raise_link(places: Places, name: str, node: str, where: str) -> None:
    """Raise both ends of a node's link; `where` is the node's address."""
    netns = places.netns(name, node)
    batch(netns, f"addr replace {where}/24 dev eth0", "link set eth0 up", "link set lo up")
    set_link(places, name, node, True)


def set_link(places: Places, name: str, node: str, up: bool) -> None:
    """Cut or restore a node's link at the switch."""
    state = "up" if up else "down"
    run("ip", "-n", places.switch(name), "link", "set", places.port(node), state)


def remove(places: Places, name: str) -> None:
    """Remove every namespace and the uplink of a testbed."""
    remove_uplink(places.uplink(name))
    for netns in namespaces(places, name):
        run("ip", "netns", "del", netns, check=False)


def batch(netns: str, *commands: str) -> None:
    """Commands of `ip` in a namespace, at one call; the first that fails ends them."""
    run("ip", "-n", netns, "-batch", "-", text="\n".join(commands) + "\n")


def remove_uplink(link: str) -> None:
    """Remove a host's end of an uplink, and with it the other end."""
    run("ip", "link", "del", link, check=False)
