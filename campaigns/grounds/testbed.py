"""Opening of deployed testbeds for campaigns, their facts, and the ground of cells on a Ceph store.

The steps of a cell are in `campaigns.grounds.live`.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from campaigns.engine.job import Job, Make
from campaigns.engine.kind import Prepared
from campaigns.engine.lock import alone, path_in
from campaigns.engine.plan import Plan
from campaigns.engine.provenance import Facts, calibration, deployer
from campaigns.engine.store import RunStore
from campaigns.grounds.cores import scales
from campaigns.grounds.live import LiveTestbed
from campaigns.papers.dlr.cell import CellSetting, Services, StoreGround
from schemas import extensions
from schemas.errors import HotbedError, UserError
from testbed.agent.contract import AGENT_ROOT
from testbed.choose import choose, choose_ready, ready
from testbed.client import agent_client
from testbed.deploy import bundle
from testbed.deploy.lifecycle import wait_healthy
from testbed.deploy.roles import spec_of
from testbed.faults import refuse_faults
from testbed.reach import shell_to
from testbed.sites.contract import Site, Testbed
from testbed.spec import load_spec
from testbed.stores.contract import PRESSURE, Needs

FAKE_GROUND = "HOTBED_FAKE_GROUND"
"""Environment variable for tests: a Python file with ``open_ground(testbed: str)``, which returns a
`StoreGround`."""
OTHER = "other"
"""Ground of a testbed on the site of an installed package, or of a package's own store. The store
has the testbed's name; its entry point names a function that takes the spec's file and returns the
`StoreGround`."""
FACTS_S = 60.0
SERVES_S = 30.0


V = TypeVar("V")


def reach(site: Site, testbed: Testbed) -> LiveTestbed:
    """Return a testbed that is up and deployed, with its agent and shells."""
    return LiveTestbed(
        site=site,
        testbed=testbed,
        spec=spec_of(testbed),
        agent=agent_client(testbed),
        shell_to=lambda name: shell_to(testbed, testbed.node(name)),
    )


@contextmanager
def open_live(
    testbed: str,
    spec_file: Path,
    fit: Callable[[LiveTestbed], V],
    *,
    say: Callable[[str], None],
    restore: Callable[[V], object] | None = None,
) -> Iterator[V]:
    """Open a testbed that is up and deployed from the campaign's spec, and lock it meanwhile. `fit`
    returns the paper's view of the testbed, or raises UserError; `say` reports a process that the
    command waits for; `restore` restores the deployed settings at the end. UserError: the testbed
    is missing, does not match the spec, or is not deployed."""
    site, found = choose_ready(testbed)
    refuse_faults(found.directory, found.name)
    live = reach(site, found)
    if load_spec(spec_file).digest() != live.spec.digest():
        raise UserError(
            f"the testbed was not made from {spec_file}",
            where=f"testbed {live.name}",
            do="bring that spec up, or name another testbed with --testbed",
        )
    fitted = fit(live)
    require_current(found)
    with alone(found, say):
        try:
            yield fitted
        finally:
            if restore is not None:
                with suppress(HotbedError):  # the failing step has already reported the lost node
                    restore(fitted)


@contextmanager
def shares_by_speed(
    live: LiveTestbed, prepared: Prepared, say: Callable[[str], None]
) -> Iterator[Callable[[Make], Make]]:
    """Choose CPU shares by the speed of a core, measured before the first cell of each block, for
    the makers of cells that the yielded function returns; restore the spec's shares at the end. A
    block of an earlier call keeps the speed that its runs have. Testbeds whose cells are not
    limited by processors keep the spec's shares."""
    if not scales(live.site, live.spec):
        yield lambda make: make
        return
    speeds = recorded_speeds(prepared.full_plan, prepared.store)
    said: set[int] = set()

    def scaled(make: Make) -> Make:
        def make_in_block(job: Job, folder: Path) -> object:
            run_id, units_s = speeds.get(job.block, (None, None))
            origin = f"as in run {run_id}"
            if units_s is None:
                origin = "measured now" if run_id is None else f"measured anew: {run_id} has none"
                run_id, units_s = None, live.core_units_s()
                speeds[job.block] = run_id, units_s
            words = live.scale_cores(units_s, run_id)
            if job.block not in said:
                say(f"block {job.block}, speed {origin}: {words}")
                said.add(job.block)
            return make(job, folder)

        return make_in_block

    live.scale_cores(None)
    try:
        yield scaled
    finally:
        with suppress(HotbedError, OSError):  # the failing step has reported the lost node
            live.scale_cores(None)


def recorded_speeds(plan: Plan, store: RunStore) -> dict[int, tuple[str | None, float | None]]:
    """Return a finished run of each block of a plan, with the speed by which its shares were
    chosen; None if it has none."""
    planned = {cell.run_id for cell in plan.cells}
    found: dict[int, tuple[str | None, float | None]] = {}
    for run in store.runs():
        if run.run_id in planned and run.status == "done":
            cores = run.provenance.calibration.get("cores") or {}
            found.setdefault(run.block, (run.run_id, cores.get("units_s")))
    return found


def read_facts(live: LiveTestbed) -> Facts:
    """Read the facts from the nodes, through the admin node. HotbedError: a node cannot be
    reached."""
    versions = live.agent.call("versions", {}, timeout_s=FACTS_S)
    hosts = live.agent.call("facts", {}, timeout_s=FACTS_S)
    for host in hosts.values():
        if "error" in host:
            raise HotbedError(
                f"the admin node does not reach the others: {host['error'].rstrip('.')}; repair "
                f"the testbed with `hotbed up SPEC` and `hotbed deploy {live.name}`."
            )
    for node in live.testbed.nodes:
        if node.facts and node.name in hosts:
            hosts[node.name]["machine"] = dict(node.facts)
    named = {str(name): str(version) for name, version in versions.items()}
    signals = sorted({node.signal for node in live.testbed.with_role("osd")})
    return Facts(
        site=live.site.kind,
        versions=named | deployer(live.spec),
        hosts=hosts,
        signal=",".join(signals) or None,
        calibration=calibration(live.spec),
        osd_count=sum(len(host.get("osds", ())) for host in hosts.values()),
    )


OFFERS = """
import json, os
from testbed.agent.contract import load_config
from testbed.agent.sense import open_store
offers = open_store(load_config(), None).offers()
print(json.dumps({"senses": sorted(offers.senses), "acts": sorted(offers.acts)}), flush=True)
os._exit(0)  # a thread that hangs in librados must not keep us
"""
"""Script that asks the store on the admin node for its signals and actions."""


def read_offers(testbed: Testbed) -> Needs:
    """Return the signals and actions of the testbed's store, by its version and clients. Every
    deployed testbed has sensors for the pressure of its nodes. HotbedError: the admin node or the
    store does not answer."""
    command = ["env", f"PYTHONPATH={AGENT_ROOT}", "python3", "-B", "-c", OFFERS]
    done = shell_to(testbed, testbed.admin).run(command, timeout_s=FACTS_S)
    try:
        found = json.loads(done.text)
        return Needs(frozenset(found["senses"]) | {PRESSURE}, frozenset(found["acts"]))
    except (ValueError, KeyError, TypeError) as error:
        raise HotbedError(
            f"testbed {testbed.name} does not report what its store offers: {done.text[:120]!r}"
        ) from error


def require_current(testbed: Testbed) -> None:
    """Raise if the admin node has other code than this machine. Controllers run there, but a run's
    identity is the hash of the code here. UserError: the testbed must be deployed again."""
    path = f"{AGENT_ROOT}/{bundle.HASH_FILE}"
    done = shell_to(testbed, testbed.admin).run(["cat", path], check=False)
    if done.text.strip() != bundle.digest(bundle.files()):
        what = "another version of" if done.returncode == 0 else "no"
        raise UserError(
            f"the admin node has {what} Hotbed's agent and controllers",
            where=f"testbed {testbed.name}",
            do=f"run `hotbed deploy {testbed.name}`",
        )


def deployed(testbed: Testbed) -> bool:
    """Return True if the store serves and the admin node has the present code."""
    try:
        require_current(testbed)
        agent_client(testbed).strays()  # the admin node reaches the other nodes
        wait_healthy(testbed, timeout_s=SERVES_S)
    except HotbedError:
        return False
    return True


class LiveGround:
    """A `StoreGround`: a deployed testbed on real nodes, reached only by ssh to its admin node."""

    def __init__(self, site: str, name: str) -> None:
        """Raise UserError if `site` has no testbed called `name`, or if the testbed is not up."""
        from testbed.sites import open_site

        self.name = name
        self.site: Site = open_site(site)
        self.testbed: Testbed = ready(self.site, name)
        refuse_faults(self.testbed.directory, name)

    @cached_property
    def live(self) -> LiveTestbed:
        """The testbed with its agent."""
        return reach(self.site, self.testbed)

    def facts(self) -> Facts:
        require_current(self.testbed)
        return read_facts(self.live)

    def offers(self) -> Needs:
        return read_offers(self.testbed)

    def services(self, setting: CellSetting) -> Services:
        if setting.parameters.op == "s3":
            from campaigns.papers.dlr.gateway import GatewayServices

            return GatewayServices(self.live, setting)
        if setting.parameters.op == OTHER:
            from campaigns.papers.dlr.other import OtherServices

            return OtherServices(self.live, setting)
        from campaigns.papers.dlr.live import BenchServices, OpenLoopServices

        if setting.parameters.op == "open":
            return OpenLoopServices(self.live, setting)
        return BenchServices(self.live, setting)

    def lock_path(self) -> Path:
        return path_in(self.testbed.directory)


def open_ground(
    kind: str,
    testbed: str,
    site: str | None = None,
    spec: Path | None = None,
    model: Path | None = None,
) -> StoreGround:
    """Return the ground `kind` (a campaign's `ground`) on the testbed `testbed`, which must be up
    and deployed, except for `sim`: its only input is the file `spec` or, without it, a spec named
    by `testbed` (`campaigns.grounds.sim.open_sim`), and `model` has constants of its model. `site`:
    kind of the site, by default the ground's. UserError: there is no such testbed; the message has
    the next step."""
    if model is not None and kind != "sim":
        raise UserError(
            f"a model belongs to the ground sim, not to {kind}", where="--model", do="leave it out"
        )
    if kind == "fake":
        return _fake(testbed)
    if kind == "sim":
        from campaigns.grounds.sim import open_sim

        return open_sim(testbed, spec, model)
    if kind == OTHER:
        if testbed in extensions.installed("store"):
            return cast(StoreGround, extensions.make("store", testbed, spec))
        site = choose(testbed)[0].kind
    return LiveGround(site or kind, testbed)


def _fake(testbed: str) -> StoreGround:
    file = os.environ.get(FAKE_GROUND)
    if not file:
        raise UserError(
            "the ground fake exists only in Hotbed's own tests",
            allowed="local, chameleon, inventory, other",
        )
    spec = importlib.util.spec_from_file_location("hotbed_fake_ground", Path(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(StoreGround, module.open_ground(testbed))
