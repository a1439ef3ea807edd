"""A cluster brought up by cephadm step by step, each of which is left out where it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from schemas.errors import RemoteError
from testbed.deployers.cephadm import commands, outputs, specs
from testbed.deployers.cephadm.commands import CONFIG, SSH_CONFIG, Cephadm
from testbed.deployers.settings import Settings
from testbed.playbook_events import Failure
from testbed.playbook_run import DeployError
from testbed.sites.contract import Node, Progress, Testbed
from testbed.ssh import Completed

KEY_FILES = ("/etc/ceph/ceph.conf", "/etc/ceph/ceph.client.admin.keyring")
COMMAND_S = 180.0
BOOTSTRAP_S = 1800.0  # it pulls the image
SERVICES_S = 1800.0  # and so does every other host
POLL_S = 5.0


class Machines(Protocol):
    """Commands as root on the testbed's machines."""

    def run(
        self, node: Node, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = COMMAND_S
    ) -> Completed:
        """What a command came to, whatever its exit code. RemoteError: it cannot be run."""


@dataclass(frozen=True)
class Clock:
    """Time, as a test may set it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Cluster:
    """See the module's text.

    Args:
        testbed: its nodes are prepared.
        cephadm: how the program is called.
        machines: runs commands.
        clock: for waiting.
    """

    def __init__(
        self, testbed: Testbed, cephadm: Cephadm, machines: Machines, clock: Clock | None = None
    ) -> None:
        self._testbed = testbed
        self._cephadm = cephadm
        self._machines = machines
        self._clock = clock or Clock()
        # Of a testbed whose monitors were let go already, any node.
        self.first = (testbed.with_role("mon") or testbed.nodes)[0]

    def bring(self, release: str, settings: Settings, progress: Progress) -> None:
        """Everything up to OSDs and gateways that run.

        Raises:
            DeployError: a step failed or did not end in time; the message says which and why.
        """
        progress("fetching cephadm", 0.0)
        for node in self._testbed.nodes:
            self._must(node, commands.fetch_program(release), "cephadm cannot be fetched")
        progress("bootstrapping the cluster", 0.05)
        self._bootstrap_once(settings)
        progress("adding hosts", 0.4)
        self._let_in()
        self._apply(specs.hosts(self._testbed), "the hosts are not accepted")
        progress("deploying monitors and managers", 0.45)
        self._apply(specs.controls(self._testbed), "monitors and managers are not accepted")
        self._wait_daemons(("mon", "mgr"))
        progress("deploying OSDs", 0.6)
        if self._osds().up < self._testbed.osds:
            self._apply(specs.osds(self._testbed), "the OSDs are not accepted")
            self._wait(self._osds_missing)
        self._apply(specs.osds(self._testbed, managed=False), "the OSDs cannot be let alone")
        if self._testbed.with_role("rgw"):
            progress("deploying gateways", 0.9)
            self._apply(specs.gateways(self._testbed), "the gateways are not accepted")
            self._wait_daemons(("rgw",))
        progress("waiting for the administrator's key", 0.95)
        self._wait(self._keys_missing)
        progress("deployed by cephadm", 1.0)

    def remove(self, progress: Progress) -> list[Failure]:
        """Take the cluster away from every host; failures of those where that failed, or that do
        not answer."""
        progress("pausing the orchestrator", 0.0)
        with suppress(RemoteError):  # its own turn tells of it
            if "mon" in self.first.roles and self.serves():
                self._machines.run(self.first, self._cephadm.pause())
        failed = []
        for number, node in enumerate(self._testbed.nodes):
            progress(f"removing the cluster from {node.name}", number / len(self._testbed.nodes))
            try:
                reason, away = self._remove_from(node), False
            except RemoteError as error:
                reason, away = str(error).rstrip("."), True
            if reason is not None:
                failed.append(Failure(node.name, "cephadm", "Remove the cluster", reason, away))
        return failed

    def _remove_from(self, node: Node) -> str | None:
        # A program without it is not ours.
        if self._machines.run(node, ["test", "-f", commands.RELEASE]).returncode != 0:
            return None  # nothing was brought
        done = self._machines.run(node, self._cephadm.remove(), timeout_s=BOOTSTRAP_S)
        if done.returncode != 0:
            return f"node {node.name}: {_last_line(done)}"
        self._machines.run(node, commands.forget(self._cephadm.fsid))
        return None

    def serves(self) -> bool:
        """Whether the cluster's monitors answer on the first host."""
        return self._status().returncode == 0

    def _status(self) -> Completed:
        return self._machines.run(self.first, self._cephadm.ask("status"))

    # --- steps -------------------------------------------------------------------------------

    def _bootstrap_once(self, settings: Settings) -> None:
        """What stands already is left alone, also where it does not answer just now: only what a
        bootstrap that was cut off left may be taken away without being asked for.
        """
        mark = commands.bootstrapped(self._cephadm.fsid)
        answer = self._status()
        if answer.returncode != 0:
            if self._machines.run(self.first, ["test", "-e", mark]).returncode == 0:
                raise DeployError(
                    f"node {self.first.name}: the cluster does not answer: {_last_line(answer)}; "
                    "see to its monitors, or remove it (`hotbed deploy --remove`) if it may go."
                )
            self._bootstrap(settings)
        self._must(self.first, ["touch", mark], "the finished bootstrap cannot be marked")

    def _bootstrap(self, settings: Settings) -> None:
        # What a bootstrap that was cut off left, which the next one would refuse to overwrite.
        folder = f"/var/lib/ceph/{self._cephadm.fsid}"
        if self._machines.run(self.first, ["test", "-d", folder]).returncode == 0:
            self._must(
                self.first, self._cephadm.remove(), "half a cluster cannot be removed", BOOTSTRAP_S
            )
        self._write(CONFIG, specs.configuration(settings))
        ssh = specs.ssh_config(self._testbed)
        if ssh is not None:
            self._write(SSH_CONFIG, ssh)
        argv = self._cephadm.bootstrap(
            self.first.address, self.first.name, CONFIG, SSH_CONFIG if ssh is not None else None
        )
        self._must(self.first, argv, "cephadm cannot bootstrap the cluster", BOOTSTRAP_S)

    def _write(self, path: str, content: bytes) -> None:
        argv = ["sh", "-c", 'umask 077; cat > "$1"', "sh", path]
        self._must(self.first, argv, "settings cannot be written", input=content)

    def _let_in(self) -> None:
        key = self._ask("cephadm", "get-pub-key", as_json=False).strip()
        for node in self._testbed.nodes:
            self._must(
                node,
                commands.authorize(),
                "the cluster's key cannot be let in",
                input=key.encode() + b"\n",
            )

    def _apply(self, wanted: Sequence[Mapping[str, object]], what: str) -> None:
        argv = self._cephadm.apply()
        self._must(self.first, argv, what, input=specs.document(wanted))

    def _wait_daemons(self, kinds: Sequence[str]) -> None:
        wanted = {
            kind: tuple(node.name for node in self._testbed.with_role(kind)) for kind in kinds
        }

        def missing() -> str | None:
            return outputs.lacking(outputs.parse_daemons(self._ask("orch", "ps")), wanted)

        self._wait(missing)

    def _osds(self) -> outputs.Osds:
        return outputs.parse_osds(self._ask("status"))

    def _osds_missing(self) -> str | None:
        have, wanted = self._osds(), self._testbed.osds
        return None if have.up >= wanted else f"{have.up} of {wanted} OSDs are up"

    def _keys_missing(self) -> str | None:
        """cephadm brings them of its own accord, some time after a host got its label."""
        for node in specs.administrators(self._testbed):
            for path in KEY_FILES:
                if self._machines.run(node, ["test", "-s", path]).returncode != 0:
                    return f"node {node.name} has no {path}"
        return None

    def _wait(self, missing: Callable[[], str | None]) -> None:
        end = self._clock.now() + SERVICES_S
        while True:
            sentence = missing()
            if sentence is None:
                return
            if self._clock.now() >= end:
                hosts = outputs.parse_hosts(self._ask("orch", "host", "ls"))
                lost = [f"{host.name} is {host.status}" for host in hosts if host.status]
                more = f" ({'; '.join(lost)})" if lost else ""
                raise DeployError(
                    f"after {SERVICES_S / 60:.0f} min {sentence}{more}; look at `cephadm shell -- "
                    f"ceph log last cephadm` on node {self.first.name}."
                )
            self._clock.sleep(POLL_S)

    # --- commands ----------------------------------------------------------------------------

    def _ask(self, *arguments: str, as_json: bool = True) -> str:
        argv = self._cephadm.ask(*arguments) if as_json else self._cephadm.ceph(*arguments)
        return self._must(self.first, argv, f"`ceph {' '.join(arguments)}` failed").text

    def _must(
        self,
        node: Node,
        argv: Sequence[str],
        what: str,
        timeout_s: float = COMMAND_S,
        *,
        input: bytes = b"",
    ) -> Completed:
        done = self._machines.run(node, argv, input=input, timeout_s=timeout_s)
        if done.returncode != 0:
            raise DeployError(f"node {node.name}: {what}: {_last_line(done)}")
        return done


def _last_line(done: Completed) -> str:
    """The last thing that was said on standard error; cephadm ends with its reason there."""
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else f"exit code {done.returncode} and no message"
