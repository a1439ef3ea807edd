"""cephadm between our own preparation and adoption."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.errors import UserError
from testbed.checks import Finding
from testbed.deploy import save_spec, unshaped
from testbed.deployer_spec import CephadmDeployer
from testbed.deployers import foreign
from testbed.deployers.cephadm.cluster import COMMAND_S, Cluster
from testbed.deployers.cephadm.commands import as_root, cephadm_of
from testbed.deployers.contract import Deployed, Plan
from testbed.deployers.settings import Settings, memory_target, quiet_settings
from testbed.deployers.store_status import read_status
from testbed.inventory import cluster_id
from testbed.playbook_run import DeployError, private_data
from testbed.reach import shell_to
from testbed.sites.contract import Node, Progress, Site, Testbed, silent
from testbed.spec import TestbedSpec
from testbed.ssh import Completed
from testbed.stores.ceph.features import PG_UPMAP_PRIMARY, RELEASES

UNTESTED = (
    f"cephadm and the features of Reef and later ({PG_UPMAP_PRIMARY}, ...) are untested on a live "
    "cluster"
)
_ENGINES = {"podman": "podman", "docker": "docker.io"}


class Cephadm:
    """See the module's text."""

    kind = "cephadm"

    def usable(self) -> Finding:
        """See `Deployer.usable`: all of it happens on the nodes."""
        return Finding(
            "deployer-cephadm",
            "deployer cephadm",
            True,
            f"ready; {UNTESTED}",
            "nodes need a container engine and a way to the image",
            needed=False,
        )

    def plan(self, spec: TestbedSpec) -> Plan:
        """See `Deployer.plan`."""
        deployer = _deployer_of(spec)
        image = deployer.image or "the release's own image"
        return Plan(
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

    def deploy(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        site: Site | None = None,
        wipe: bool = False,
    ) -> dict[str, int]:
        """See `Deployer.deploy`. Steps of cephadm that were needed count no changes of nodes."""
        deployer = _deployer_of(spec)
        save_spec(testbed, spec)
        ours = foreign.inventory(testbed, spec, self.kind, _variables(deployer, wipe=wipe))
        settings = quiet_settings(spec.ceph())
        settings["osd"].setdefault("osd_memory_target_autotune", "false")
        cluster = _cluster(testbed, deployer)
        with private_data(testbed) as folder, unshaped(testbed, site):
            ready = foreign.prepare(testbed, folder, ours, foreign.part(progress, 0.0, 0.2))
            cluster.bring(deployer.release, settings, foreign.part(progress, 0.2, 0.8))
            last = foreign.part(progress, 0.8, 1.0)
            known = settings | memory_targets(testbed, settings)
            taken = foreign.adopt(testbed, spec, folder, ours, last, settings=known)
        return foreign.added(ready, taken)

    def remove(
        self,
        testbed: Testbed,
        spec: TestbedSpec,
        progress: Progress = silent,
        *,
        packages: bool = False,
        site: Site | None = None,
    ) -> dict[str, int]:
        """See `Deployer.remove`. Devices and our own parts go also where cephadm failed."""
        deployer = _deployer_of(spec)
        variables = _variables(deployer, wipe=False) | {"remove_packages": packages}
        ours = foreign.inventory(testbed, spec, self.kind, variables)
        with private_data(testbed) as folder, unshaped(testbed, site):
            first, rest = foreign.part(progress, 0.0, 0.5), foreign.part(progress, 0.5, 1.0)
            return foreign.every(
                lambda: _remove(_cluster(testbed, deployer), first),
                lambda: foreign.take_away(testbed, folder, ours, rest),
            )

    def status(self, testbed: Testbed) -> Deployed:
        """See `Deployer.status`."""
        return read_status(self.kind, testbed)


class OverSsh:
    """`Machines` of a testbed, over ssh."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed

    def run(
        self, node: Node, argv: Sequence[str], *, input: bytes = b"", timeout_s: float = COMMAND_S
    ) -> Completed:
        """See `Machines.run`."""
        command = as_root(node.ssh_user, argv)
        shell = shell_to(self._testbed, node)
        return shell.run(command, input=input, timeout_s=timeout_s, check=False)


def memory_targets(testbed: Testbed, settings: Settings) -> Settings:
    """What each host's OSDs may take, as the role `ceph` gives it to them; none where the spec says
    it. cephadm itself would give them most of what a host has."""
    if "osd_memory_target" in settings["osd"]:
        return {}
    return {
        f"osd/host:{node.name}": {
            "osd_memory_target": str(memory_target(node.memory_bytes, len(node.osd_devices)))
        }
        for node in testbed.with_role("osd")
    }


def _cluster(testbed: Testbed, deployer: CephadmDeployer) -> Cluster:
    return Cluster(testbed, cephadm_of(deployer, cluster_id(testbed)), OverSsh(testbed))


def _remove(cluster: Cluster, progress: Progress) -> dict[str, int]:
    failures = cluster.remove(progress)
    if failures:
        told = "; ".join(failure.message for failure in failures)
        raise DeployError(f"cephadm could not remove its cluster from {told}.", tuple(failures))
    return {}


def _deployer_of(spec: TestbedSpec) -> CephadmDeployer:
    found = spec.ceph().deployer
    if not isinstance(found, CephadmDeployer):
        raise UserError(f"spec {spec.name} names the deployer {found.kind} and not cephadm.")
    return found


def _variables(deployer: CephadmDeployer, *, wipe: bool) -> dict[str, object]:
    # cephadm takes no host without LVM's commands, also where no OSD will be.
    programs = (_ENGINES[deployer.engine], "curl", "lvm2", "openssh-server")
    return {
        "validate_wipe": wipe,
        "hotbed_engine": deployer.engine,
        "validate_ceph_packages": foreign.packages(True, *programs),
    }
