"""Folders and names of the local site.

Every name on the machine follows from the testbed's and the node's name, so that leftovers are
found without any record. With another HOTBED_STATE the names carry its tag: two users of one
machine do not remove each other's testbeds.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_STATE = Path("/var/lib/hotbed")
DEFAULT_CACHE = Path("/var/cache/hotbed")


def _short(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


@dataclass(frozen=True)
class LocalNames:
    """Folders of one installation and the names that it uses on the machine."""

    state: Path = DEFAULT_STATE
    cache: Path = DEFAULT_CACHE

    @classmethod
    def of_environment(cls) -> LocalNames:
        """Read the folders from HOTBED_STATE and HOTBED_CACHE."""
        return cls(
            Path(os.environ.get("HOTBED_STATE", str(DEFAULT_STATE))).resolve(),
            Path(os.environ.get("HOTBED_CACHE", str(DEFAULT_CACHE))).resolve(),
        )

    @property
    def tag(self) -> str:
        """Empty for the default state folder, else four digits that identify the folder."""
        return "" if self.state == DEFAULT_STATE else _short(str(self.state), 4)

    @property
    def testbeds(self) -> Path:
        """Folder that holds a folder for each testbed."""
        return self.state / "testbeds"

    def testbed(self, name: str) -> Path:
        """Return the folder of one testbed."""
        return self.testbeds / name

    def lock(self, name: str) -> Path:
        """Return the lock file of one testbed."""
        return self.state / "locks" / name

    @property
    def cgroup(self) -> str:
        """Control group that holds all testbeds, relative to a hierarchy's root."""
        return f"hotbed{self.tag}"

    @property
    def awake_cgroup(self) -> str:
        """Control group of the processes that keep processors awake. Below `cgroup` they would take
        time from programs outside the testbeds."""
        return f"{self.cgroup}-awake"

    def netns_prefix(self, name: str | None = None) -> str:
        """Return the prefix of the network namespaces of a testbed (or of all)."""
        # No testbed's or node's name has a dot: "a" does not match names of "a-b".
        return f"hb{self.tag}-" if name is None else f"hb{self.tag}-{name}."

    def netns(self, name: str, node: str) -> str:
        """Return the network namespace of a node."""
        return f"{self.netns_prefix(name)}{node}"

    def switch(self, name: str) -> str:
        """Return the network namespace of the testbed's bridge; no node has an underscore."""
        return f"{self.netns_prefix(name)}_switch"

    def uplink_prefix(self) -> str:
        """Return the prefix of the host's ends of the testbeds' uplinks."""
        return f"hbu{self.tag}-" if self.tag else "hbu-"

    def uplink(self, name: str) -> str:
        """Return the host's end of the testbed's uplink (an interface name: at most 15 bytes)."""
        return f"{self.uplink_prefix()}{_short(name, 7)}"

    def port(self, node: str) -> str:
        """Return the switch's end of a node's link, in the switch's namespace."""
        return f"p-{_short(node, 10)}"

    def machine(self, name: str, node: str) -> str:
        """Return systemd-nspawn's machine name of a node."""
        return f"hb{self.tag}-{name}.{node}"
