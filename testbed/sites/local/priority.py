"""Switch port that serves DSCP by strict priority (sections 4.6 and 5.4 of PriorityMeister).

Level 1 is CS7, level 7 is CS1; packets with another DSCP go after all levels. The kernel's PRIO is
not available everywhere, so this is HTB. One class has the port's rate. Below it a class for each
level has nearly no rate of its own and may borrow the whole rate. HTB lets classes borrow in the
order of their priorities.
"""

from __future__ import annotations

from testbed.stores.nfs.wire import ETHERNET_MTU, frame_of

LEVELS = 7
WHOLE = "1:100"
"""Class with the port's rate."""
QUEUE_S = 0.025
"""Length of a level's queue, as time of the link."""
# HTB needs a guaranteed rate: 1538 bytes in 1.5 s. For larger frames the burst is less than one
# frame; HTB still sends it. Guaranteed packets ignore the priority, so the rate must be small.
_LEAST, _LEAST_BURST = "8kbit", frame_of()
_SSH_SHARE = 0.05


def commands(device: str, bits_per_s: float, levels: int, mtu: int = ETHERNET_MTU) -> list[str]:
    """Return the lines of ``tc -batch`` for a device without its own queueing, with packets of at
    most `mtu` bytes.

    ssh and ARP keep a testbed reachable. They have a twentieth of the link guaranteed, and above it
    they are served last.
    """
    rate, frame = f"{round(bits_per_s)}bit", frame_of(mtu)
    burst = max(round(bits_per_s / 8 / 1000), 2 * frame)
    limit = max(round(bits_per_s / 8 * QUEUE_S), 16 * frame)
    other, management = levels + 1, levels + 2
    lines = [
        f"qdisc add dev {device} root handle 1: htb default {other:x}",
        f"class add dev {device} parent 1: classid {WHOLE} htb rate {rate} burst {burst} "
        f"cburst {burst} quantum {frame}",
    ]
    for leaf in range(1, management + 1):
        least = f"{round(bits_per_s * _SSH_SHARE)}bit" if leaf == management else _LEAST
        prio = min(leaf - 1, LEVELS)
        lines += [
            f"class add dev {device} parent {WHOLE} classid 1:{leaf:x} htb rate {least} "
            f"burst {_LEAST_BURST} ceil {rate} cburst {burst} prio {prio} quantum {frame}",
            f"qdisc add dev {device} parent 1:{leaf:x} handle {leaf:x}0: bfifo limit {limit}",
        ]
    to = f"filter add dev {device} parent 1: protocol"
    lines.append(f"{to} arp prio 5 u32 match u32 0 0 at 0 flowid 1:{management:x}")
    lines += [
        f"{to} ip prio 10 u32 match ip protocol 6 0xff match ip {port} 22 0xffff "
        f"flowid 1:{management:x}"
        for port in ("sport", "dport")
    ]
    lines += [
        f"{to} ip prio 20 u32 match ip dsfield {8 * (8 - level) << 2:#04x} 0xfc flowid 1:{level:x}"
        for level in range(1, levels + 1)
    ]
    return lines
