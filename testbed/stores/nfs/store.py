"""The NFS store for the admin node: every proxy, and the network's enforcement.

An action is JSON: {action: put-parameters, server, parameters}, {action: put-profile, server,
profile} or {action: set-network, host, parameters}. A proxy's parameters null are those of the
deployment; a host's null remove its enforcement. Connections stay, but a new profile restarts the
proxy with its default parameters. Standard library only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.errors import HotbedError, StoreError, UserError
from testbed.agent.contract import AGENT_ROOT, AgentConfig, node_of
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.nfs.netenforcer import FILE

ACTIONS = {
    "put-parameters": ("server", "parameters"),
    "put-profile": ("server", "profile"),
    "set-network": ("host", "parameters"),
}
"""Fields of each action; the first names its node."""
_UNIT = "hotbed-netenforcer.service"
_TIMEOUT_S = 120.0


class NfsStore:
    """Store of a testbed with NFS servers; `shell_to` returns a shell to a node by its name."""

    def __init__(self, config: AgentConfig, shell_to: Callable[[str], Shell]) -> None:
        self._config, self._reach = config, shell_to

    @property
    def servers(self) -> tuple[str, ...]:
        """Nodes with a server, in the spec's order."""
        return tuple(node.name for node in self._config.nodes if "nfs" in node.roles)

    def ask(self, server: str, verb: str, *arguments: str, body: object = None) -> Any:
        """Return the answer of `testbed.stores.nfs.control` on a server node. UserError: there is
        no such server, or it refuses. StoreError: proxy or server do not answer. RemoteError: the
        node cannot be reached."""
        if server not in self.servers:
            raise UserError(
                f"node {server!r} of testbed {self._config.testbed} is no NFS server",
                allowed=", ".join(self.servers),
            )
        text = b"" if body is None else json.dumps(body).encode()
        return self._python(server, "control", (verb, *arguments), text)

    def act(self, actions: Sequence[Mapping[str, Any]]) -> list[Effect]:
        """Carry out `actions`: in order on each server and host, concurrently on different ones.
        Return one effect each, in order. UserError: an action is malformed; none was begun."""
        lanes: dict[str, list[int]] = {}
        for place, action in enumerate(actions):
            lanes.setdefault(_node_of(action), []).append(place)
        effects: dict[int, Effect] = {}

        def follow(where: str) -> None:
            for place in lanes[where]:
                effects[place] = self._one(actions[place])

        every(lanes, follow)
        return [effects[place] for place in range(len(actions))]

    def check(self, network: Mapping[str, Any]) -> dict[str, list[str]]:
        """Return, in words, how each host's enforcement differs from `network`. Hosts without flows
        must enforce nothing."""

        def look(host: str) -> list[str]:
            body = json.dumps(network.get(host)).encode()
            said: list[str] = self._python(host, "netenforcer", ("check", "-"), body)["differences"]
            return said

        return dict(every([node.name for node in self._config.nodes], look))

    def caches(self) -> dict[str, int]:
        """Write back and drop the servers' cache of exported files; return counts by server."""
        return dict(every(self.servers, lambda name: int(self.ask(name, "caches")["files"])))

    def _one(self, action: Mapping[str, Any]) -> Effect:
        start, changed = time.monotonic(), True
        try:
            if action["action"] == "set-network":
                message = self._network(action["host"], action["parameters"])
            elif action["action"] == "put-profile":
                changed = bool(
                    self.ask(action["server"], "profile", body=action["profile"])["changed"]
                )
                message = f"{action['server']} {'restarted with' if changed else 'has'} its profile"
            else:
                given = action["parameters"]
                verb = "default" if given is None else "put"
                self.ask(action["server"], verb, body=given)
                message = f"{action['server']} has its parameters"
        except HotbedError as error:
            return Effect(False, str(error), time.monotonic() - start)
        return Effect(True, message, time.monotonic() - start, {"changed": float(changed)})

    def _network(self, host: str, wanted: Mapping[str, Any] | None) -> str:
        """Set a host's enforcement through its unit; stopping the unit removes everything."""
        node_of(self._config, host)
        shell = self._reach(host)

        def sh(script: str) -> tuple[int, str]:
            done = shell.run(["sh", "-c", script], check=False, timeout_s=_TIMEOUT_S)
            return done.returncode, done.text

        if wanted is None or not wanted["flows"]:
            if sh(f"systemctl stop {_UNIT} && rm -f {FILE}")[0] != 0:
                raise StoreError(f"host {host}: network enforcement cannot be removed.")
            return f"{host} enforces nothing"
        shell.put(json.dumps(wanted, sort_keys=True).encode() + b"\n", str(FILE))
        restart = f"systemctl reset-failed {_UNIT} 2>/dev/null; systemctl reload-or-restart {_UNIT}"
        if sh(restart)[0] != 0:
            log = f"journalctl --no-pager -o cat -n 20 -u {_UNIT} | grep ^netenforcer: | tail -n 1"
            said = sh(log)[1].strip().removeprefix("netenforcer: ")
            sh(f"systemctl stop {_UNIT}; rm -f {FILE}")
            raise StoreError(f"host {host}: {said or 'network enforcement does not start'}")
        return f"{host} enforces {len(wanted['flows'])} flows"

    def _python(self, node: str, module: str, arguments: Sequence[str], body: bytes) -> Any:
        script = (
            f"cd {AGENT_ROOT} && PYTHONDONTWRITEBYTECODE=1 exec python3 -m "
            f'testbed.stores.nfs.{module} "$@"'
        )
        argv = ["sh", "-c", script, module, *arguments]
        done = self._reach(node).run(argv, input=body, check=False, timeout_s=_TIMEOUT_S)
        if done.returncode == 0:
            return json.loads(done.stdout)
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        kind = UserError if done.returncode == 2 else StoreError
        raise kind(f"node {node}: {lines[-1].removeprefix('netenforcer: ')}")


def _node_of(action: Mapping[str, Any]) -> str:
    """Return the node of a well-formed action."""
    kind = action.get("action")
    if not isinstance(kind, str) or kind not in ACTIONS:
        raise UserError(f"action {kind!r} is not the NFS store's", allowed=", ".join(ACTIONS))
    for name in ACTIONS[kind]:
        if name not in action:
            raise UserError(f"action {kind!r} of the NFS store lacks {name!r}")
    return str(action[ACTIONS[kind][0]])


def store_of(config: AgentConfig) -> NfsStore:
    """Return the store of this admin node; raise UserError if the testbed has another kind."""
    if config.store != "nfs":
        raise UserError(f"testbed {config.testbed} runs the store {config.store!r}, not nfs")
    return NfsStore(config, lambda node: reach(config, node))
