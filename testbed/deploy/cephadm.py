"""cephadm as a deployer: current releases, in containers. Untested on a live cluster.

Sources: cephadm(8) and Ceph's documentation, "Deploying a new Ceph cluster", "Purging a cluster",
"Service Management" and "OSD Service" (docs.ceph.com/en/latest/cephadm).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from schemas.errors import RemoteError
from testbed.checks import CheckResult
from testbed.deploy import foreign
from testbed.deploy.contract import DeploymentPlan
from testbed.deploy.foreign import (
    Bring,
    ForeignDeployer,
    Settings,
    as_root,
    memory_target,
    quiet_settings,
    volumes,
)
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import DeployError, Failure
from testbed.deploy.ports import GATEWAY_PORT
from testbed.reach import shell_to
from testbed.sites.contract import Node, Progress, Testbed
from testbed.spec import TestbedSpec
from testbed.spec.stores import CephadmDeployer
from testbed.ssh import Completed, last_line
from testbed.stores.ceph.store import RELEASES

UNTESTED = "cephadm is untested on a live cluster"
PROGRAM = "/usr/local/sbin/cephadm"
RELEASE = f"{PROGRAM}.release"
"""File with the release of a program that Hotbed brought."""
CONFIG = "/root/hotbed-cephadm.conf"
"""Settings for the bootstrap, on the first monitor's node."""
SSH_CONFIG = "/root/hotbed-cephadm.ssh"
"""For the manager's ssh to machines with sshd at another port, on the same node."""
ARCHIVE = "https://download.ceph.com"
KEY_FILES = ("/etc/ceph/ceph.conf", "/etc/ceph/ceph.client.admin.keyring")
ADMIN_LABEL = "_admin"
"""Label of the hosts on which cephadm keeps ceph.conf and the administrator's keyring."""
GATEWAYS = "hotbed"
SSH_PORT = 22
RUNNING = 1  # in DaemonDescriptionStatus
COMMAND_S = 180.0
BOOTSTRAP_S = 1800.0  # it pulls the image
SERVICES_S = 1800.0  # and so does every other host
POLL_S = 5.0
_ENGINES = {"podman": "podman", "docker": "docker.io"}
Run = Callable[..., Completed]
"""`run(node, argv, input=, timeout_s=)` runs a command as root on a node and returns its result,
also one with an exit code. RemoteError: it cannot be run."""


class Cephadm(ForeignDeployer):
    """Deployer of Ceph by cephadm. Its own steps count no changes of nodes."""

    kind = "cephadm"

    def usable(self) -> CheckResult:
        """See `Deployer.usable`: all of it happens on the nodes."""
        return CheckResult(
            "deployer-cephadm",
            "deployer cephadm",
            True,
            f"ready; {UNTESTED}",
            "nodes need a container engine and a way to the image",
            needed=False,
        )

    def plan(self, spec: TestbedSpec) -> DeploymentPlan:
        """See `Deployer.plan`."""
        deployer = _deployer_of(spec)
        image = deployer.image or "the release's own image"
        return DeploymentPlan(
            self.kind,
            f"{RELEASES[deployer.release]} ({deployer.release})",
            (
                f"check every machine (no container itself, LVM), install {deployer.engine} and "
                "missing packages",
                "name the machines as the spec does; scratch file systems and fio's files",
                "a volume group over each OSD device",
                f"cephadm: bootstrap from {image}, hosts, monitors, managers, OSDs, gateways",
                "settings, racks and pools, the control plane on the admin node",
            ),
            (UNTESTED,),
        )

    def variables(self, spec: TestbedSpec) -> dict[str, Any]:
        """See `ForeignDeployer.variables`. cephadm takes no host without LVM's commands, also where
        no OSD will be."""
        engine = _deployer_of(spec).engine
        programs = (_ENGINES[engine], "curl", "lvm2", "openssh-server")
        return {
            "hotbed_engine": engine,
            "validate_ceph_packages": foreign.packages(True, *programs),
        }

    def ready(self, testbed: Testbed, spec: TestbedSpec, progress: Progress) -> Bring:
        """See `ForeignDeployer.ready`."""
        deployer = _deployer_of(spec)
        settings = quiet_settings(spec.ceph())
        settings["osd"].setdefault("osd_memory_target_autotune", "false")

        def bring(folder: Path, progress: Progress) -> tuple[dict[str, int], Settings]:
            _cluster(testbed, deployer).bring(deployer.release, settings, progress)
            return {}, settings | memory_targets(testbed, settings)

        return bring

    def tear_down(
        self, testbed: Testbed, spec: TestbedSpec, folder: Path, progress: Progress
    ) -> dict[str, int]:
        """See `ForeignDeployer.tear_down`."""
        failures = _cluster(testbed, _deployer_of(spec)).remove(progress)
        if failures:
            reasons = "; ".join(failure.message for failure in failures)
            message = f"cephadm could not remove its cluster from {reasons}."
            raise DeployError(message, tuple(failures))
        return {}


def _deployer_of(spec: TestbedSpec) -> CephadmDeployer:
    found = spec.ceph().deployer
    assert isinstance(found, CephadmDeployer), "chosen by `deployers.choose`"
    return found


def memory_targets(testbed: Testbed, settings: Settings) -> Settings:
    """Return the memory of each host's OSDs as the role `ceph` gives it; empty if the spec sets it.
    cephadm itself would give them most of a host's memory."""
    if "osd_memory_target" in settings["osd"]:
        return {}
    return {
        f"osd/host:{node.name}": {
            "osd_memory_target": str(memory_target(node.memory_bytes, len(node.osd_devices)))
        }
        for node in testbed.with_role("osd")
    }


# -- the cluster, step by step; a step that is done already is left out ----------------------------


def _cluster(testbed: Testbed, deployer: CephadmDeployer) -> CephadmCluster:
    def run(
        node: Node, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = COMMAND_S
    ) -> Completed:
        command = as_root(node.ssh_user, argv)
        shell = shell_to(testbed, node)
        return shell.run(command, input=input, timeout_s=timeout_s, check=False)

    command = CephadmCommand(cluster_id(testbed), deployer.image, deployer.engine)
    return CephadmCluster(testbed, command, run)


class CephadmCluster:
    """A cluster that cephadm brings up on prepared nodes; `now` and `sleep` are for waiting."""

    def __init__(
        self,
        testbed: Testbed,
        cephadm: CephadmCommand,
        run: Run,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._testbed, self._cephadm, self._run = testbed, cephadm, run
        self._now, self._sleep = now, sleep
        # Any node if the monitors were let go already.
        self.first = (testbed.with_role("mon") or testbed.nodes)[0]

    def bring(self, release: str, settings: Settings, progress: Progress) -> None:
        """Bring everything up to running OSDs and gateways. DeployError: a step failed or did not
        end in time; the message says which and why."""
        progress("fetching cephadm", 0.0)
        for node in self._testbed.nodes:
            self._must(node, fetch_program(release), "cephadm cannot be fetched")
        progress("bootstrapping the cluster", 0.05)
        self._bootstrap_once(settings)
        progress("adding hosts", 0.4)
        argv = self._cephadm.ceph("cephadm", "get-pub-key")
        key = self._must(self.first, argv, "the cluster's key cannot be read").text.strip()
        for node in self._testbed.nodes:
            failed = "the cluster's key cannot be let in"
            self._must(node, authorize(), failed, input=key.encode() + b"\n")
        self._apply(hosts(self._testbed), "the hosts are not accepted")
        progress("deploying monitors and managers", 0.45)
        self._apply(controls(self._testbed), "monitors and managers are not accepted")
        self._wait(lambda: self._missing("mon") or self._missing("mgr"))
        progress("deploying OSDs", 0.6)
        if self._look(self._osds_missing) is not None:
            self._apply(osds(self._testbed), "the OSDs are not accepted")
            self._wait(self._osds_missing)
        self._apply(osds(self._testbed, managed=False), "the OSDs cannot be let alone")
        if self._testbed.with_role("rgw"):
            progress("deploying gateways", 0.9)
            self._apply(gateways(self._testbed), "the gateways are not accepted")
            self._wait(lambda: self._missing("rgw"))
        progress("waiting for the administrator's key", 0.95)
        self._wait(self._keys_missing)
        progress("deployed by cephadm", 1.0)

    def remove(self, progress: Progress) -> list[Failure]:
        """Remove the cluster from every host; return the failures."""
        progress("pausing the orchestrator", 0.0)
        with suppress(RemoteError):  # reported below
            if "mon" in self.first.roles and self._status().returncode == 0:
                # Without this the orchestrator makes again what is removed.
                pause = self._cephadm.ceph("mgr", "module", "disable", "cephadm")
                self._run(self.first, pause)
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
        if self._run(node, ["test", "-f", RELEASE]).returncode != 0:
            return None  # nothing was brought: a program without this file is not Hotbed's
        done = self._run(node, self._cephadm.remove(), timeout_s=BOOTSTRAP_S)
        if done.returncode != 0:
            return f"node {node.name}: {last_line(done.stderr)}"
        self._run(node, forget(self._cephadm.fsid))
        return None

    def _status(self) -> Completed:
        return self._run(self.first, self._cephadm.ask("status"))

    def _bootstrap_once(self, settings: Settings) -> None:
        """Bootstrap unless a bootstrap has finished. A finished cluster that does not answer is
        left alone: without a request only the rest of an unfinished bootstrap may be removed.
        """
        mark = f"/var/lib/ceph/{self._cephadm.fsid}/hotbed-bootstrapped"
        answer = self._status()
        if answer.returncode != 0:
            if self._run(self.first, ["test", "-e", mark]).returncode == 0:
                raise DeployError(
                    f"node {self.first.name}: the cluster does not answer: "
                    f"{last_line(answer.stderr)}; see to its monitors, or remove it "
                    "(`hotbed deploy --remove`) if it may go."
                )
            self._bootstrap(settings)
        self._must(self.first, ["touch", mark], "the finished bootstrap cannot be marked")

    def _bootstrap(self, settings: Settings) -> None:
        # The next bootstrap would refuse to overwrite the rest of an unfinished one.
        folder = f"/var/lib/ceph/{self._cephadm.fsid}"
        if self._run(self.first, ["test", "-d", folder]).returncode == 0:
            failed = "half a cluster cannot be removed"
            self._must(self.first, self._cephadm.remove(), failed, timeout_s=BOOTSTRAP_S)
        ssh = ssh_config(self._testbed)
        for path, content in ((CONFIG, configuration(settings)), (SSH_CONFIG, ssh)):
            if content is not None:
                argv = ["sh", "-c", 'umask 077; cat > "$1"', "sh", path]
                self._must(self.first, argv, "settings cannot be written", input=content)
        argv = self._cephadm.bootstrap(
            self.first.address, self.first.name, CONFIG, SSH_CONFIG if ssh is not None else None
        )
        failed = "cephadm cannot bootstrap the cluster"
        self._must(self.first, argv, failed, timeout_s=BOOTSTRAP_S)

    def _apply(self, wanted: Sequence[Mapping[str, object]], failed: str) -> None:
        self._must(self.first, self._cephadm.apply(), failed, input=document(wanted))

    def _missing(self, kind: str) -> str | None:
        """Return which hosts have no running daemon of a kind, as a clause; None if all have."""
        rows = [row for row in self._ask("orch", "ps") if row["daemon_type"] == kind]
        runs = {row.get("hostname") for row in rows if row.get("status") == RUNNING}
        missing = [n.name for n in self._testbed.with_role(kind) if n.name not in runs]
        broken = [
            f"{kind}.{row['daemon_id']} is in state {row.get('status_desc') or 'unknown'}"
            for row in rows
            if row.get("hostname") in missing
        ]
        more = f" ({'; '.join(broken)})" if broken else ""
        return f"no {kind} runs on {', '.join(missing)}{more}" if missing else None

    def _osds_missing(self) -> str | None:
        up, wanted = self._ask("status")["osdmap"]["num_up_osds"], self._testbed.osds
        return None if up >= wanted else f"{up} of {wanted} OSDs are up"

    def _keys_missing(self) -> str | None:
        """Look for the keys: cephadm copies them some time after a host got its label."""
        for node in administrators(self._testbed):
            for path in KEY_FILES:
                if self._run(node, ["test", "-s", path]).returncode != 0:
                    return f"node {node.name} has no {path}"
        return None

    def _hosts_lost(self) -> str | None:
        rows = self._ask("orch", "host", "ls")
        lost = [f"{row['hostname']} is {row['status']}" for row in rows if row.get("status")]
        return "; ".join(lost) or None

    def _look(self, missing: Callable[[], str | None]) -> str | None:
        """Return the clause of `missing`. DeployError: an answer of Ceph has another form."""
        try:
            return missing()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DeployError(f"an answer of `ceph` has an unknown form ({error!r}).") from error

    def _wait(self, missing: Callable[[], str | None]) -> None:
        """Wait until `missing` returns None. DeployError: it does not in time."""
        end = self._now() + SERVICES_S
        while (clause := self._look(missing)) is not None:
            if self._now() >= end:
                lost = self._look(self._hosts_lost)
                more = f" ({lost})" if lost else ""
                raise DeployError(
                    f"after {SERVICES_S / 60:.0f} min {clause}{more}; look at `cephadm shell -- "
                    f"ceph log last cephadm` on node {self.first.name}."
                )
            self._sleep(POLL_S)

    def _ask(self, *arguments: str) -> Any:
        """Return an answer of `ceph`. An empty list is a sentence such as "No daemons reported";
        null fields may be left out."""
        failed = f"`ceph {' '.join(arguments)}` failed"
        text = self._must(self.first, self._cephadm.ask(*arguments), failed).text.strip()
        return [] if text.startswith("No ") else json.loads(text)

    def _must(self, node: Node, argv: Sequence[str], failed: str, **options: Any) -> Completed:
        done = self._run(node, argv, **options)
        if done.returncode != 0:
            raise DeployError(f"node {node.name}: {failed}: {last_line(done.stderr)}")
        return done


# -- command lines ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class CephadmCommand:
    """Command lines of cephadm and of `ceph` for one cluster; `image` None: the image that the
    program itself names."""

    fsid: str
    image: str | None = None
    engine: str = "podman"

    def command(self, *arguments: str) -> list[str]:
        """Call cephadm itself."""
        docker = ["--docker"] if self.engine == "docker" else []
        image = ["--image", self.image] if self.image else []
        return [PROGRAM, *docker, *image, *arguments]

    def bootstrap(
        self, mon_ip: str, mon_id: str, config: str, ssh_config: str | None = None
    ) -> list[str]:
        """Make the cluster's first monitor and manager on this host, named `mon_id` at `mon_ip`,
        with the host's files `config` (a ceph.conf) and `ssh_config` (instead of cephadm's own).

        No dashboard, no monitoring and no daemon that the spec does not name: they would disturb
        measurements. The next deployment removes a bootstrap that failed half-way."""
        return self.command(
            *("bootstrap", "--fsid", self.fsid),
            *("--mon-ip", mon_ip, "--mon-id", mon_id),
            *("--config", config),
            *("--ssh-user", "root"),
            *(("--ssh-config", ssh_config) if ssh_config else ()),
            "--skip-dashboard",
            "--skip-monitoring-stack",
            "--skip-firewalld",
            "--orphan-initial-daemons",
            "--allow-overwrite",
        )

    def ceph(self, *arguments: str) -> list[str]:
        """Call `ceph` in a container, with the administrator's key."""
        return self.command("shell", "--fsid", self.fsid, "--", "ceph", *arguments)

    def ask(self, *arguments: str) -> list[str]:
        """Call `ceph` for an answer in JSON."""
        return self.ceph(*arguments, "--format", "json")

    def apply(self) -> list[str]:
        """Apply the specifications on standard input."""
        return self.ceph("orch", "apply", "-i", "-")

    def remove(self) -> list[str]:
        """Remove this host's daemons, data and OSDs of the cluster."""
        return self.command("rm-cluster", "--force", "--zap-osds", "--fsid", self.fsid)


def fetch_program(release: str) -> list[str]:
    """Put the release's cephadm, which is one file, at `PROGRAM`; leave it alone if it is there.

    cephadm of another release than the image's refuses to bootstrap it, and without an image it
    names its own release's.
    """
    address = f"{ARCHIVE}/rpm-{release}/el9/noarch/cephadm"
    script = (
        'test -x "$1" && test "$(cat "$1.release" 2>/dev/null)" = "$3" && exit 0; '
        'curl --fail --silent --show-error --location --output "$1.new" "$2" && '
        'chmod 755 "$1.new" && mv -f "$1.new" "$1" && echo "$3" > "$1.release"'
    )
    return ["sh", "-c", script, "sh", PROGRAM, address, release]


def authorize() -> list[str]:
    """Let the key on standard input in as root, once."""
    script = (
        "umask 077; key=$(cat); file=/root/.ssh/authorized_keys; mkdir -p /root/.ssh; "
        'touch "$file"; grep -qxF "$key" "$file" || printf "%s\\n" "$key" >> "$file"'
    )
    return ["sh", "-c", script]


def forget(fsid: str) -> list[str]:
    """Remove the cluster's key from root's authorized keys, the program and the settings."""
    script = (
        "file=/root/.ssh/authorized_keys; "
        'test ! -e "$file" || sed -i --follow-symlinks "/ ceph-$1\\$/d" "$file"; '
        'rm -f "$2" "$2.release" "$2.new" "$3" "$4"'
    )
    return ["sh", "-c", script, "sh", fsid, PROGRAM, CONFIG, SSH_CONFIG]


# -- service specifications ------------------------------------------------------------------------
# Tests check them with `ServiceSpec.from_json` of Debian's python3-ceph-common.

Specification = dict[str, Any]


def administrators(testbed: Testbed) -> tuple[Node, ...]:
    """Return nodes with the administrator's key: admin node, clients, the host of the bootstrap."""
    names = {testbed.admin.name, testbed.with_role("mon")[0].name}
    names |= {node.name for node in testbed.with_role("client")}
    return tuple(node for node in testbed.nodes if node.name in names)


def hosts(testbed: Testbed) -> list[Specification]:
    """Return every machine under the spec's name, with its roles as labels, the first monitor
    first."""
    administer = {node.name for node in administrators(testbed)}
    first = testbed.with_role("mon")[0]
    return [
        {
            "service_type": "host",
            "hostname": node.name,
            "addr": node.address,
            "labels": [*sorted(node.roles), *([ADMIN_LABEL] if node.name in administer else [])],
        }
        for node in sorted(testbed.nodes, key=lambda node: node != first)
    ]


def _on_hosts(service: str, nodes: Iterable[Node]) -> Specification:
    return {"service_type": service, "placement": {"hosts": [node.name for node in nodes]}}


def controls(testbed: Testbed) -> list[Specification]:
    """Return monitors and managers."""
    return [_on_hosts(kind, testbed.with_role(kind)) for kind in ("mon", "mgr")]


def osds(testbed: Testbed, *, managed: bool = True) -> list[Specification]:
    """Return OSDs on the volumes of each node, whatever cephadm's inventory reports of the paths.
    `managed`: True if cephadm makes them. It must not once they exist: it would make an OSD again
    that an experiment took out."""
    return [
        {
            **_on_hosts("osd", (node,)),
            "service_id": f"hotbed-{node.name}",
            **({} if managed else {"unmanaged": True}),
            "spec": {"data_devices": {"paths": [f"/dev/{v['vg']}/{v['lv']}" for v in found]}},
        }
        for node in testbed.with_role("osd")
        if (found := volumes(testbed, node))
    ]


def gateways(testbed: Testbed) -> list[Specification]:
    """Return RADOS gateways; empty if no node has the role."""
    nodes = testbed.with_role("rgw")
    more = {"service_id": GATEWAYS, "spec": {"rgw_frontend_port": GATEWAY_PORT}}
    return [{**_on_hosts("rgw", nodes), **more}] if nodes else []


def document(specs: Iterable[Mapping[str, Any]]) -> bytes:
    """Return specifications as `ceph orch apply -i -` reads them, one YAML document each."""
    return "---\n".join(yaml.safe_dump(dict(spec), sort_keys=False) for spec in specs).encode()


def ssh_config(testbed: Testbed) -> bytes | None:
    """Return an ssh_config for cephadm's manager; None if its own will do, with every sshd at the
    usual port.

    It checks no host keys, as cephadm's own: its connections ask for that.
    """
    ports = {node.address: node.ssh_port for node in testbed.nodes if node.ssh_port != SSH_PORT}
    if not ports:
        return None
    lines = [f"Host {address}\n  Port {port}" for address, port in ports.items()]
    common = ("User root", "StrictHostKeyChecking no", "UserKnownHostsFile /dev/null")
    lines += ["Host *", *(f"  {line}" for line in (*common, "ConnectTimeout 30"))]
    return "\n".join([*lines, ""]).encode()


def configuration(settings: Mapping[str, Mapping[str, str]]) -> bytes:
    """Return a ceph.conf for `cephadm bootstrap --config`, which moves it into the monitors'
    database."""
    lines = []
    for section, values in settings.items():
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in values.items()), ""]
    return "\n".join(lines).encode()
