"""The NFS store for the admin node: every proxy, and the network's enforcement.

Sensed: the counters of each proxy, as rates since the previous observation. Changed: a proxy's
parameters, its device's profile, and the hosts' network enforcement. Standard library only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from schemas.errors import HotbedError, StoreError, UserError
from testbed.agent.contract import AGENT_ROOT, AgentConfig, node_of
from testbed.agent.reach import every, reach
from testbed.ssh import Shell
from testbed.stores.contract import Effect
from testbed.stores.nfs.netenforcer import FILE

ROLE = "nfs"
_UNIT = "hotbed-netenforcer.service"
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class WorkloadRates:
    """Rates of a workload at a server per second of the interval: requests, seconds of estimated
    work, seconds of waiting, held-back requests. `queued` and `outstanding` are current counts."""

    requests: float
    work: float
    waited: float
    held: float
    queued: int
    outstanding: int
    weight: float


@dataclass(frozen=True)
class ServerObservation:
    """State of a proxy: its policy, its connections, and its workloads by name."""

    policy: str
    clients: int
    queued: int
    outstanding: int
    workloads: Mapping[str, WorkloadRates] = field(default_factory=dict)


@dataclass(frozen=True)
class NfsObservation:
    """All servers. In the first observation `interval_s` and all rates are 0."""

    t_s: float
    interval_s: float
    servers: Mapping[str, ServerObservation]


@dataclass(frozen=True)
class PutParameters:
    """Action: set a proxy's parameters; None: those of the deployment. Connections stay."""

    server: str
    parameters: Mapping[str, Any] | None


@dataclass(frozen=True)
class PutProfile:
    """Action: set the profile of a server's device. The proxy restarts with default parameters."""

    server: str
    profile: Mapping[str, Any]


@dataclass(frozen=True)
class SetNetwork:
    """Action: set what a host enforces on its outgoing traffic; None: nothing."""

    host: str
    parameters: Mapping[str, Any] | None


NfsAction: TypeAlias = PutParameters | PutProfile | SetNetwork


class NfsStore:
    """Store of a testbed with NFS servers; see the module's docstring.

    Args:
        config: the testbed.
        shell_to: returns a shell to a node, given its name.
        clock: returns seconds.
    """

    def __init__(
        self,
        config: AgentConfig,
        shell_to: Callable[[str], Shell],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._reach, self._clock = config, shell_to, clock
        self._began = clock()
        self._before: tuple[float, Mapping[str, Any]] | None = None

    @property
    def servers(self) -> tuple[str, ...]:
        """Nodes with a server, in the spec's order."""
        return tuple(node.name for node in self._config.nodes if ROLE in node.roles)

    def address(self, host: str) -> str:
        """Return the address of a node; raise UserError if there is no such node."""
        return node_of(self._config, host).address

    def ask(self, server: str, verb: str, *arguments: str, body: object = None) -> Any:
        """Return the answer of `testbed.stores.nfs.control` on a server node.

        Raises:
            UserError: there is no such server, or it refuses.
            StoreError: proxy or server do not answer.
            RemoteError: the node cannot be reached.
        """
        if server not in self.servers:
            raise UserError(
                f"node {server!r} of testbed {self._config.testbed} is no NFS server",
                allowed=", ".join(self.servers),
            )
        text = b"" if body is None else json.dumps(body).encode()
        return self._python(server, "control", (verb, *arguments), text)

    def status(self) -> dict[str, Any]:
        """Return each proxy's own status (GET /status), by server."""
        return dict(every(self.servers, lambda server: self.ask(server, "status")))

    def sense(self) -> NfsObservation:
        """Return one observation; rates are means since the previous call."""
        now, status = self._clock(), self.status()
        then, old = self._before or (now, {})
        self._before = (now, status)
        interval = now - then
        found = {name: observed(status[name], old.get(name), interval) for name in status}
        return NfsObservation(now - self._began, interval, found)

    def act(self, actions: Sequence[NfsAction]) -> Sequence[Effect]:
        """Carry out `actions`: in order on each server and host, concurrently on different ones.
        Return one effect each, in order."""
        lanes: dict[str, list[int]] = {}
        for place, action in enumerate(actions):
            where = action.host if isinstance(action, SetNetwork) else action.server
            lanes.setdefault(where, []).append(place)
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
            said: list[str] = self._netenforcer(host, "check", body)["differences"]
            return said

        return dict(every([node.name for node in self._config.nodes], look))

    def caches(self) -> dict[str, int]:
        """Write back and drop the servers' cache of exported files; return counts by server."""
        return dict(every(self.servers, lambda name: int(self.ask(name, "caches")["files"])))

    # -- inside ---------------------------------------------------------------------------------

    def _one(self, action: NfsAction) -> Effect:
        start = self._clock()
        try:
            if isinstance(action, PutParameters):
                if action.parameters is None:
                    self.ask(action.server, "default")
                else:
                    self.ask(action.server, "put", body=dict(action.parameters))
                message, changed = f"{action.server} has its parameters", True
            elif isinstance(action, PutProfile):
                answer = self.ask(action.server, "profile", body=dict(action.profile))
                changed = bool(answer["changed"])
                message = f"{action.server} {'started anew with' if changed else 'has'} its profile"
            else:
                changed, message = self._network(action)
        except HotbedError as error:
            return Effect(False, str(error), self._clock() - start)
        return Effect(True, message, self._clock() - start, {"changed": float(changed)})

    def _network(self, action: SetNetwork) -> tuple[bool, str]:
        """Set a host's enforcement through its unit; stopping the unit removes everything."""
        host, wanted = action.host, action.parameters
        node_of(self._config, host)
        shell = self._reach(host)
        if wanted is None or not wanted["flows"]:
            done = self._sh(shell, f"systemctl stop {_UNIT} && rm -f {FILE}")
            _succeeded(done, host, "network enforcement cannot be removed")
            return True, f"{host} enforces nothing"
        shell.put(json.dumps(wanted, sort_keys=True).encode() + b"\n", str(FILE))
        restart = f"systemctl reset-failed {_UNIT} 2>/dev/null; systemctl reload-or-restart {_UNIT}"
        done = self._sh(shell, restart)
        if done[0] != 0:
            log = f"journalctl --no-pager -o cat -n 20 -u {_UNIT} | grep ^netenforcer: | tail -n 1"
            said = self._sh(shell, log)[1].strip().removeprefix("netenforcer: ")
            self._sh(shell, f"systemctl stop {_UNIT}; rm -f {FILE}")
            raise StoreError(f"host {host}: {said or 'network enforcement does not start'}")
        return True, f"{host} enforces {len(wanted['flows'])} flows"

    def _sh(self, shell: Shell, script: str) -> tuple[int, str]:
        done = shell.run(["sh", "-c", script], check=False, timeout_s=_TIMEOUT_S)
        return done.returncode, done.text

    def _netenforcer(self, host: str, verb: str, body: bytes) -> Any:
        return self._python(host, "netenforcer", (verb, "-"), body)

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


def _succeeded(done: tuple[int, str], host: str, what: str) -> None:
    if done[0] != 0:
        raise StoreError(f"host {host}: {what}.")


def observed(
    now: Mapping[str, Any], before: Mapping[str, Any] | None, interval_s: float
) -> ServerObservation:
    """Return an observation from two states of a proxy (GET /status).

    Counters that fell (the proxy restarted) are taken to start at 0.
    """
    old = {one["name"]: one for one in (before or {}).get("workloads", ())}

    def rate(one: Mapping[str, Any], key: str) -> float:
        last = old.get(one["name"], {}).get(key, 0)
        grown = one[key] - last if one[key] >= last else one[key]
        return float(grown) / interval_s if interval_s > 0 and before is not None else 0.0

    workloads = {
        one["name"]: WorkloadRates(
            requests=rate(one, "requests"),
            work=rate(one, "work_seconds"),
            waited=rate(one, "waited_seconds"),
            held=rate(one, "held"),
            queued=int(one["queued"]),
            outstanding=int(one["outstanding"]),
            weight=float(one["weight"]),
        )
        for one in now["workloads"]
    }
    return ServerObservation(
        now["policy"], now["clients"], now["queued"], now["outstanding"], workloads
    )


def store_of(config: AgentConfig) -> NfsStore:
    """Return the store of this admin node; raise UserError if the testbed has another kind."""
    if config.store != "nfs":
        raise UserError(f"testbed {config.testbed} runs the store {config.store!r}, not nfs")
    return NfsStore(config, lambda node: reach(config, node))
