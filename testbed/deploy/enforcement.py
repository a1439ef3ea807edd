"""Enforcement of a plan on a running testbed: apply, read and remove the parameters of the NFS
proxies and of the network. The engine's side: every call goes through the admin node's agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.errors import StoreError, UserError, unknown
from testbed.agent.contract import Agent
from testbed.client import agent_client
from testbed.sites.contract import Testbed

PLAIN = "fifo"
"""Mode of network parameters that installs nothing."""


class NfsEnforcement:
    """Access to the enforcement on a deployed testbed with the store NFS, by its `agent`."""

    def __init__(self, testbed: Testbed, agent: Agent | None = None) -> None:
        self.testbed = testbed
        self._agent = agent or agent_client(testbed)
        if not self.servers:
            raise UserError(
                "has no NFS server",
                where=f"testbed {testbed.name}",
                do="bring up one such as testbed/specs/pm.yaml",
            )

    @property
    def servers(self) -> tuple[str, ...]:
        """Nodes with an NFS server."""
        return tuple(node.name for node in self.testbed.with_role("nfs"))

    def addresses(self) -> dict[str, tuple[str, ...]]:
        """Return the addresses of all nodes, by name."""
        return {node.name: (node.address,) for node in self.testbed.nodes}

    # -- a proxy --------------------------------------------------------------------------------

    def put(self, server: str, parameters: Mapping[str, Any]) -> None:
        """Put parameters into force (the JSON of PUT /parameters); connections stay. StoreError:
        the proxy refuses them (the message says why); the old ones stay in force."""
        self._act([_put(server, parameters)])

    def default(self, server: str) -> None:
        """Put the parameters into force that the proxy was deployed with."""
        self._act([_put(server, None)])

    def put_profile(self, server: str, profile: Mapping[str, Any]) -> bool:
        """Make the proxy charge by `profile`. Return True if the profile changed; the proxy then
        restarted with its default parameters."""
        effects = self._act([{"action": "put-profile", "server": server, "profile": profile}])
        return bool(effects[0]["detail"]["changed"])

    def parameters(self, server: str) -> dict[str, Any]:
        """Return the parameters in force at a proxy."""
        return dict(self._ask(server, "parameters"))

    def status(self, server: str) -> dict[str, Any]:
        """Return a proxy's counts (GET /status)."""
        return dict(self._ask(server, "status"))

    def metrics(self, server: str) -> str:
        """Return a proxy's metrics page for Prometheus."""
        return str(self._ask(server, "metrics")["text"])

    def caches(self) -> dict[str, int]:
        """Drop the servers' caches of the exported files; return the number of files by server."""
        return dict(self._agent.call("nfs-caches", timeout_s=180))

    # -- the network ----------------------------------------------------------------------------

    def network_apply(self, network: Mapping[str, Any]) -> None:
        """Put network parameters into force on the hosts they name; remove them on the others.
        StoreError: a host cannot enforce them; enforcement is then removed from all hosts."""
        hosts = _enforced(network)
        self._known(hosts)
        actions = [_set(node.name, hosts.get(node.name)) for node in self.testbed.nodes]
        try:
            self._act(actions)
        except StoreError:
            self._agent.call("nfs-act", {"actions": self._free()}, timeout_s=180)
            raise

    def network_check(self, network: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
        """Return, by node, sentences on each difference from these parameters (None: nothing
        enforced). Nodes without differences are left out."""
        hosts = {} if network is None else _enforced(network)
        self._known(hosts)
        found = self._agent.call("nfs-check", {"network": hosts}, timeout_s=180)
        return {host: list(said) for host, said in found.items() if said}

    # -- both -----------------------------------------------------------------------------------

    def apply(self, parameters: Mapping[str, Any], *, unknown: str = "refuse") -> None:
        """Put a plan's parameters (storage by device, network; docs/prioritymeister.md) into force;
        servers without parameters get their default ones. `unknown` is the treatment of clients
        that no workload names: refuse or best-effort."""
        storage = storage_by_server(parameters)
        self._known(storage)
        actions = []
        for server in self.servers:
            given = storage.get(server)
            actions.append(_put(server, None if given is None else {**given, "unknown": unknown}))
        self._act(actions)
        self.network_apply(parameters["network"])

    def remove(self) -> None:
        """Reset every proxy to its default parameters, and remove the network's enforcement."""
        self._act([_put(server, None) for server in self.servers] + self._free())

    # -- inside ---------------------------------------------------------------------------------

    def _ask(self, server: str, verb: str, *arguments: str) -> Any:
        payload = {"server": server, "verb": verb, "arguments": list(arguments)}
        return self._agent.call("nfs-ask", payload, timeout_s=120)

    def _act(self, actions: Sequence[Mapping[str, Any]]) -> list[Any]:
        effects = self._agent.call("nfs-act", {"actions": list(actions)}, timeout_s=180)
        failed = [str(effect["message"]) for effect in effects if not effect["ok"]]
        if failed:
            more = f" ({len(failed) - 1} more failed)" if len(failed) > 1 else ""
            raise StoreError(f"{failed[0]}{more}")
        return list(effects)

    def _free(self) -> list[Mapping[str, Any]]:
        return [_set(node.name, None) for node in self.testbed.nodes]

    def _known(self, names: Mapping[str, Any]) -> None:
        nodes = {node.name for node in self.testbed.nodes}
        for name in names:
            if name not in nodes:
                raise unknown(
                    "node",
                    name,
                    sorted(nodes),
                    where=f"testbed {self.testbed.name}",
                    do="hosts of the topology must be called as its nodes",
                )


def storage_by_server(parameters: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the proxies' parameters by server, from parameters by device (``server:device``).
    UserError: two devices of one server are used; a proxy serves one device."""
    found: dict[str, Mapping[str, Any]] = {}
    for device, given in parameters["storage"].items():
        server = str(device).partition(":")[0]
        if server in found:
            raise UserError(
                f"server {server} has two devices in the topology; on a testbed each NFS "
                "server has one"
            )
        found[server] = given
    return found


def _enforced(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters by host, without the hosts that need no installation."""
    if network.get("mode") == PLAIN:
        return {}
    return {name: host for name, host in network["hosts"].items() if host["flows"]}


def _put(server: str, parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {"action": "put-parameters", "server": server, "parameters": parameters}


def _set(host: str, parameters: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {"action": "set-network", "host": host, "parameters": parameters}
