"""Close ports of a machine to all but the testbed's nodes, now and at every boot.

Run on the node as ``python3 - WANTED`` with a JSON object: `ports` (numbers and ranges such as
6200-6219), `addresses` of all nodes. The rules are in a table of their own; a stop of the unit
removes it. Prints {"changed": [what]}. Standard library only.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path

TABLE = "inet hotbed_peers"
RULES = Path("/etc/hotbed/peers.nft")
UNIT = Path("/etc/systemd/system/hotbed-peers.service")
# Like the distribution's nftables.service, before any network; its reload flushes all rules.
UNIT_TEXT = f"""# Written by Hotbed's role base.
[Unit]
Description=The store's back ends are for nodes of the testbed alone
DefaultDependencies=no
Wants=network-pre.target
Before=network-pre.target
After=nftables.service
PartOf=nftables.service
ReloadPropagatedFrom=nftables.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft -f {RULES}
ExecReload=/usr/sbin/nft -f {RULES}
ExecStop=-/usr/sbin/nft delete table {TABLE}

[Install]
WantedBy=sysinit.target
"""


def rules(ports: list[str], addresses: list[str]) -> str:
    """Return a script for ``nft -f`` that replaces the table atomically."""
    closed = f"iifname != lo tcp dport {{ {', '.join(ports)} }}"
    lines = []
    for version, family, own in ((4, "ip", "127.0.0.1"), (6, "ip6", "::1")):
        known = sorted({a for a in addresses if ipaddress.ip_address(a).version == version})
        lines.append(f"    {closed} {family} saddr != {{ {', '.join([own, *known])} }} drop")
    body = "\n".join(lines)
    return (
        f"table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n"
        "  chain input {\n    type filter hook input priority -10; policy accept;\n"
        f"{body}\n  }}\n}}\n"
    )


def put(path: Path, text: str) -> list[str]:
    """Write a file atomically; return its name if it changed."""
    if path.exists() and path.read_text() == text:
        return []
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return [str(path)]


def call(*argv: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} failed: {done.stderr.strip()[-300:] or 'no reason given'}")


def main() -> None:
    """Run the script; see the module."""
    wanted = json.loads(sys.argv[1])
    changed = put(UNIT, UNIT_TEXT)
    if changed:
        call("systemctl", "daemon-reload")
        call("systemctl", "enable", UNIT.name)
    changed += put(RULES, rules(wanted["ports"], wanted["addresses"]))
    look = ["nft", "list", "table", *TABLE.split()]
    if changed or subprocess.run(look, capture_output=True, check=False).returncode != 0:
        call("systemctl", "restart", UNIT.name)
        changed.append(f"{UNIT.name} started")
    json.dump({"changed": changed}, sys.stdout)


if __name__ == "__main__":
    main()
