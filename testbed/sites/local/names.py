"""Where the local site keeps things, and what it calls them.

Every name on the machine follows from the testbed's and the node's name, so that leftovers are
found without any record. With another HOTBED_STATE the names carry a tag of it: two users of one
machine do not take each other's testbeds down.
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
class Places:
    """Folders of one installation and the names that it uses on the machine."""

    state: Path = DEFAULT_STATE
    cache: Path = DEFAULT_CACHE

    @classmethod
    def of_environment(cls) -> Places:
        """From HOTBED_STATE and HOTBED_CACHE."""
        return cls(
            Path(os.environ.get("HOTBED_STATE", str(DEFAULT_STATE))).resolve(),
            Path(os.environ.get("HOTBED_CACHE", str(DEFAULT_CACHE))).resolve(),
        )

    @property
    def tag(self) -> str:
        """Empty for the default state folder, else four digits that stand for it."""
        return "" if self.state == DEFAULT_STATE else _short(str(self.state), 4)

    @property
    def testbeds(self) -> Path:
        """One folder a testbed."""
        return self.state / "testbeds"

    def testbed(self, name: str) -> Path:
        """Folder of one testbed."""
        return self.testbeds / name

    def lock(self, name: str) -> Path:
        """Lock file of one testbed."""
        return self.state / "locks" / name

    @property
    def cgroup(self) -> str:
        """Control group that holds all testbeds, relative to a hierarchy's root."""
        return f"hotbed{self.tag}"

    @property
    def awake_cgroup(self) -> str:
        """Control group of the processes that keep processors awake. Not below `cgroup`: those
        would take from who is beside the testbeds."""
        return f"{self.cgroup}-awake"

    def netns_prefix(self, name: str | None = None) -> str:
        """What the network namespaces of a testbed (or of all) start with."""
        # No testbed's or node's name has a dot: "a" does not match what belongs to "a-b".
        return f"hb{self.tag}-" if name is None else f"hb{self.tag}-{name}."

    def netns(self, name: str, node: str) -> str:
        """Network namespace of a node."""
        return f"{self.netns_prefix(name)}{node}"

    def switch(self, name: str) -> str:
        """Network namespace that holds the testbed's bridge; no node's name has an underscore."""
        return f"{self.netns_prefix(name)}_switch"

    def uplink_prefix(self) -> str:
        """What the host's ends of the testbeds' uplinks start with."""
        return f"hbu{self.tag}-" if self.tag else "hbu-"

    def uplink(self, name: str) -> str:
        """The host's end of the link into the testbed (an interface name: 15 bytes at most)."""
        return f"{self.uplink_prefix()}{_short(name, 7)}"

    def port(self, node: str) -> str:
        """The switch's end of a node's link; it lives in the switch's namespace."""
        return f"p-{_short(node, 10)}"

    def machine(self, name: str, node: str) -> str:
        """systemd-nspawn's machine name."""
        return f"hb{self.tag}-{name}.{node}"
