"""The site `chameleon`: see docs/chameleon.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed import reach
from testbed.inventory import cluster_id
from testbed.sites import keys
from testbed.sites.chameleon import provision
from testbed.sites.chameleon.cloud import LIVE, Cloud, CloudError, Lease
from testbed.sites.chameleon.errors import NoCredentials, when
from testbed.sites.chameleon.lease import broken_words, find_lease, prolong
from testbed.sites.chameleon.options import Options, check_spec, read_options
from testbed.sites.chameleon.owner import remember_owner, require_owner
from testbed.sites.chameleon.prepare import Scan, Shells, scan
from testbed.sites.chameleon.release import remove_all, strays
from testbed.sites.chameleon.work import Work, base_name, left
from testbed.sites.clock import Clock, SystemClock
from testbed.sites.contract import (
    Capability,
    Cost,
    Node,
    Progress,
    SiteError,
    State,
    Status,
    Testbed,
    Usage,
    silent,
)
from testbed.sites.inventory import usage
from testbed.sites.inventory.contact import all_or_error, ask, everywhere
from testbed.sites.own_network import refuse_settings
from testbed.sites.records import Record, Records
from testbed.spec import TestbedSpec
from testbed.ssh import SshShell

Connect = Callable[[str, str | None], Cloud]
"""(site, project) -> the cloud, with the credentials of the environment."""


def connect(site: str, project: str | None) -> Cloud:
    """The real one; its libraries are loaded here and nowhere else."""
    from testbed.sites.chameleon.chi_cloud import open_cloud

    return open_cloud(site, project)


class ChameleonSite:
    """See `testbed.sites.contract.Site`.

    Args:
        options: of a spec; without them everything but plan and provision of a spec of another
            site works, by what the records say.
        connect, clock, records, shells, see: the outside world.
    """

    kind = "chameleon"
    capabilities = frozenset({Capability.USAGE})

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        *,
        connect: Connect = connect,
        clock: Clock | None = None,
        records: Records | None = None,
        shells: Shells = SshShell,
        see: Scan = scan,
    ) -> None:
        self._options = read_options(options) if options else None
        self._connect = connect
        self._clock = clock or SystemClock()
        self._records = records or Records(self.kind)
        self._shells, self._see = shells, see
        self._told_strays: set[tuple[str, str | None]] = set()

    # -- before ---------------------------------------------------------------------------------

    def plan(self, spec: TestbedSpec) -> Cost:
        """See `Site.plan`; asks the cloud when it would start, if there are credentials."""
        options = self._options_of(spec)
        nodes = sum(group.count for group in spec.groups)
        hours = options.lease.hours
        try:
            cloud = self._connect(options.site, options.project)
            told = provision.outlook(spec, options, cloud, self._clock)
            # Before it costs anything anew: here a state folder that was lost is known of first.
            told += self._strays(options, cloud)
        except NoCredentials as error:
            told = f"not asked what is free: {error}"
        return Cost(
            node_hours=nodes * hours,
            nodes=nodes,
            disk_bytes=sum(g.count * g.disks * g.disk.size for g in spec.groups if g.disk),
            memory_bytes=sum(group.count * group.memory for group in spec.groups),
            detail=f"on {options.site}, {told}",
            hours=hours,
        )

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        """See `Site.provision`; a lease that starts later is a SiteError with the time left."""
        options = self._options_of(spec)
        with self._records.open(spec.name) as record:
            _begin(record, spec, options, self._clock.now())
            progress("asking the cloud", 0.0)
            try:
                work = self._work(record, progress)
                remember_owner(work)
            except HotbedError:
                if not record.entries():
                    self._records.remove(spec.name)  # nothing was ever asked for
                raise
            if record.data["phase"] != "ready" or _health(work).state is not State.READY:
                provision.build(work, self._shells, self._see)
            progress("ready", 1.0)
            return describe(self._records, record.name, record.data)

    # -- looking --------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        """See `Site.folder`."""
        return self._records.folder(name)

    def names(self) -> Sequence[str]:
        """See `Site.names`."""
        return list(self._records.names())

    def status(self, name: str) -> Status:
        """See `Site.status`; when the cloud cannot be asked, what was known last."""
        data = self._records.read(name)
        if not data:
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        try:
            work = self._looking(name, data)
            status = _health(work)
            return replace(status, detail=status.detail + self._strays(work.options, work.cloud))
        except HotbedError as error:
            return _remembered(data, self._clock.now(), str(error))

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        """See `Site.find`. The cloud is asked only when the lease seems to be over."""
        data = self._records.read(name)
        if partly:
            return describe(self._records, name, data) if data and data.get("nodes") else None
        if not data or data["phase"] != "ready":
            return None
        ends = _ends_at(data)
        if ends is not None and ends <= self._clock.now():
            try:
                if _health(self._looking(name, data)).state is not State.READY:
                    return None
            except HotbedError:
                return None
        return describe(self._records, name, data)

    # -- later ----------------------------------------------------------------------------------

    def extend(self, name: str, seconds: float) -> Status:
        """See `Site.extend`.

        Raises:
            UserError: the policy, or the spec's lease.prolong, does not allow it.
            SiteError: not now (`retry_after_s` says when), or somebody else has the machines then,
                or there is no lease to extend.
        """
        if not self._records.read(name):
            return self.status(name)
        with self._records.open(name) as record:
            work = self._work(record, silent)
            lease = find_lease(work)
            if lease is None:
                detail = _health(work).detail
                raise SiteError(f"testbed {name!r} cannot be extended: {detail}")
            prolong(work, lease, seconds)
            return _health(work)

    def release(self, name: str, progress: Progress = silent) -> None:
        """See `Site.release`."""
        if name in self._records.names():
            with self._records.open(name) as record:
                if record.data and record.entries():  # else nothing was ever asked for
                    remove_all(self._work(record, progress))
                    folder = record.folder
                    reach.hang_up(name, folder, folder / "known_hosts")
                self._records.remove(name)
        progress("removed", 1.0)

    # -- capabilities ---------------------------------------------------------------------------

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """See `UsageSite.usage_counters`; of virtual machines the time that others took counts."""
        testbed = self.find(name)
        if testbed is None:
            raise UserError(f"testbed {name!r} is not ready: {self.status(name).detail}.")
        shells = {n.name: self._shells(reach.target_of(testbed, n)) for n in testbed.nodes}
        answers = everywhere(
            shells, lambda node: ask(shells[node], "usage", fsid=cluster_id(testbed))
        )
        return usage.counters(
            all_or_error(answers, "the load cannot be read:"), self._clock.monotonic()
        )

    def usage_between(self, before: Mapping[str, float], after: Mapping[str, float]) -> Usage:
        """See `UsageSite.usage_between`."""
        return usage.between(before, after)

    # -- inside ---------------------------------------------------------------------------------

    def _options_of(self, spec: TestbedSpec) -> Options:
        if spec.site.kind == self.kind:
            options = read_options(spec.site.options, f"spec {spec.name}: site.options")
        elif self._options is not None:
            options = self._options
        else:
            raise UserError(
                f"spec {spec.name} is for site {spec.site.kind}: give it a site block of kind "
                "chameleon."
            )
        check_spec(spec, options)
        refuse_settings(spec, self.kind)
        return options

    def _work(self, record: Record, progress: Progress) -> Work:
        work = self._open(record, record.data, progress)
        work.set_clock()
        require_owner(work)
        return work

    def _looking(self, name: str, data: dict[str, Any]) -> Work:
        """For looking only: nothing of it is written, and nothing is waited for, as there is what
        was known last."""
        work = self._open(Record(self._records.folder(name), data), data, silent)
        work.skew_s = float(data.get("skew_s", 0.0))
        work.pauses_s = ()
        require_owner(work)
        return work

    def _open(self, record: Record, data: Mapping[str, Any], progress: Progress) -> Work:
        options = read_options(data["options"], str(record.folder / "record.json"))
        spec = TestbedSpec.model_validate(data["spec"])
        cloud = self._connect(options.site, options.project)
        return Work(record, spec, options, cloud, self._clock, progress)

    def _strays(self, options: Options, cloud: Cloud) -> str:
        """Said once for each of Chameleon's sites and projects, with the first testbed there."""
        where = (options.site, options.project)
        if where in self._told_strays:
            return ""
        self._told_strays.add(where)
        kept = {name: self._records.read(name) for name in self._records.names()}
        bases = [base_name(name, data["tag"]) for name, data in kept.items() if data]
        try:
            found = strays(cloud, bases)
        except CloudError:
            return ""  # said another time
        return f"; of no testbed on this machine: {', '.join(found)}" if found else ""


def _begin(record: Record, spec: TestbedSpec, options: Options, now: float) -> None:
    """Write down what is going to be made, before anything is."""
    body = options.model_dump(mode="json")
    if not record.data:
        record.data = {"tag": secrets.token_hex(4), "phase": "new", "made_at": now}
    else:
        _same(record, spec, body)
    record.data |= {"spec": spec.model_dump(mode="json"), "options": body}
    record.save()


def _same(record: Record, spec: TestbedSpec, body: Mapping[str, Any]) -> None:
    """Only what is for the next lease, and our patience, may change under a testbed."""
    before = TestbedSpec.model_validate(record.data["spec"])
    free = ("lease", "patience")
    old = {key: value for key, value in record.data["options"].items() if key not in free}
    new = {key: value for key, value in body.items() if key not in free}
    names = (record.data["options"]["lease"]["name"], body["lease"]["name"])
    if before.digest() != spec.digest() or old != new or names[0] != names[1]:
        raise UserError(
            f"a testbed {record.name!r} of another spec is there: `hotbed down {record.name}` "
            "first, or give this one another name."
        )


def _health(work: Work) -> Status:
    """What the cloud says of the testbed now."""
    data = work.record.data
    known = data.get("lease") or {}
    lease = work.ask("looking at the lease", lambda: work.cloud.lease(str(known.get("id", ""))))
    names = work.spec.node_names()
    servers = {
        server.name: server
        for server in work.ask("looking at the servers", lambda: work.cloud.servers(work.base))
    }
    nodes = {}
    for name in names:
        server = servers.get(work.server_name(name))
        nodes[name] = _words(server.status) if server else "absent"
    running = sum(state == "running" for state in nodes.values())
    if lease is None or lease.status not in LIVE or lease.end_s <= work.now():
        return _without_lease(work, known, lease, nodes)
    ends = work.ours(lease.end_s)
    if lease.status == "PENDING" and lease.start_s > work.now():
        begins = f"the lease starts {when(lease.start_s)}, in {left(lease.start_s - work.now())}"
        return Status(State.PENDING, begins, nodes, ends)
    if data["phase"] == "ready" and running == len(names):
        until = f"the lease ends {when(lease.end_s)}, in {left(lease.end_s - work.now())}"
        return Status(State.READY, f"{running} of {len(names)} nodes run; {until}", nodes, ends)
    state = State.FAILED if data["phase"] == "ready" else State.BUILDING
    return Status(state, f"{running} of {len(names)} nodes run", nodes, ends)


def _without_lease(
    work: Work, known: Mapping[str, Any], lease: Lease | None, nodes: Mapping[str, str]
) -> Status:
    """Of a testbed whose lease, as `known` last, does not serve, or is not there any more."""
    if not known:
        return Status(State.BUILDING, "there is no lease yet", nodes)
    end_s = float(known["end_s"]) if lease is None else lease.end_s
    ends = work.ours(min(end_s, work.now()))
    if lease is not None and lease.status == "ERROR":
        said = f"{broken_words(work, lease)}: `hotbed up` removes it"
        return Status(State.FAILED, said, nodes, ends)
    how = f"has ended ({when(end_s)})"
    if end_s > work.now():
        how = f"was ended early, by somebody or by the site (it was to end {when(end_s)})"
    return Status(State.FAILED, f"the lease {how}: `hotbed up` again leases anew", nodes, ends)


def _words(status: str) -> str:
    return {"ACTIVE": "running", "SHUTOFF": "stopped", "BUILD": "building"}.get(
        status, status.lower()
    )


def _remembered(data: Mapping[str, Any], now: float, why: str) -> Status:
    ends = _ends_at(data)
    over = ends is not None and ends <= now
    state = State.READY if data["phase"] == "ready" and not over else State.BUILDING
    state = State.FAILED if over else state
    return Status(state, f"as known last; not asked now: {why.rstrip('.')}", {}, ends)


def _ends_at(data: Mapping[str, Any]) -> float | None:
    """End of the lease as known last, by our clock."""
    lease = data.get("lease")
    return float(lease["end_s"]) - float(data.get("skew_s", 0.0)) if lease else None


def describe(records: Records, name: str, data: Mapping[str, Any]) -> Testbed:
    """The testbed of a record whose nodes are ready."""
    folder = records.folder(name)
    nodes = tuple(Node(**{**node, "roles": frozenset(node["roles"])}) for node in data["nodes"])
    spec = TestbedSpec.model_validate(data["spec"])
    return Testbed(
        name=name,
        site=ChameleonSite.kind,
        nodes=nodes,
        ssh_key=folder / keys.LOGIN,
        known_hosts=folder / "known_hosts",
        directory=folder,
        spec_hash=spec.digest(),
    )
