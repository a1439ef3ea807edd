"""The site `chameleon` (docs/chameleon.md): bring a testbed up, look at it, prolong it, remove it.

A testbed's things are known by the tag in their names, so a crash between a call and its answer
loses nothing, and only things with the tag are removed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, UserError
from testbed.sites.chameleon.cloud import (
    LIVE,
    Cloud,
    CloudError,
    NoCredentials,
    NovaServer,
    open_cloud,
)
from testbed.sites.chameleon.lease import (
    LATE_S,
    broken_words,
    choose_flavors,
    end_leases,
    find_lease,
    hold_lease,
    listed_hosts,
    look_for_slot,
    match_reservations,
    prolong,
    unanswered,
    wanted_reservations,
)
from testbed.sites.chameleon.options import ChameleonOptions, check_spec, read_options
from testbed.sites.chameleon.servers import (
    hold_floating_ip,
    hold_servers,
    make_base,
    prepare_nodes,
    remove_servers,
    signal_of,
    wanted_servers,
)
from testbed.sites.chameleon.work import PAUSES_S, Work, base_name, belongs
from testbed.sites.clock import Clock
from testbed.sites.contract import (
    Cost,
    Node,
    Progress,
    SiteError,
    State,
    Status,
    Testbed,
    other_spec,
    refuse_network,
    silent,
)
from testbed.sites.inventory.contact import Contact
from testbed.sites.inventory.recorded import RecordedSite, testbed_in
from testbed.sites.records import Record, Records
from testbed.spec import TestbedSpec
from testbed.spec.quantities import format_s, moment

Connect = Callable[[str, str | None], Cloud]
"""(site, project) -> the cloud, with the credentials of the environment."""
WATCH_S = 60.0
"""Time in seconds to look for a lease that was requested without an answer."""


class ChameleonSite(RecordedSite):
    """Site of leased machines at Chameleon; see `testbed.sites.contract.Site`. It reads its options
    from each spec. `connect`, `clock`, `records`, `contact`: the outside world."""

    kind = "chameleon"

    def __init__(
        self,
        *,
        connect: Connect = open_cloud,
        clock: Clock | None = None,
        records: Records | None = None,
        contact: Contact | None = None,
    ) -> None:
        super().__init__(records, contact, clock)
        self._connect = connect
        self._listed_strays: set[tuple[str, str | None]] = set()

    # -- before ---------------------------------------------------------------------------------

    def plan(self, spec: TestbedSpec) -> Cost:
        """See `Site.plan`; asks the cloud for the start time if there are credentials."""
        options = self._options_of(spec)
        try:
            cloud = self._connect(options.site, options.project)
            work = Work(Record(Path("/nonexistent")), spec, options, cloud, self._clock)
            # Strays are listed before new costs arise: they show that a state folder was lost.
            detail = _outlook(work) + self._strays(work)
        except NoCredentials as error:
            detail = f"not asked what is free: {error}"
        return Cost.of(spec, f"on {options.site}, {detail}", options.lease.hours)

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        """See `Site.provision`; a lease that starts later is a SiteError with the time left."""
        options = self._options_of(spec)
        with self._records.open(spec.name) as record:
            if record.data:
                _require_same(record, spec, options)
            progress("asking the cloud", 0.0)
            cloud = self._connect(options.site, options.project)
            work = Work(record, spec, options, cloud, self._clock, progress)
            if record.data:
                _require_owner(work)
            else:
                owner = asdict(work.ask("asking who we are", cloud.identity))
                made = {"made_at": self._clock.now(), "owner": owner}
                record.data = {"tag": secrets.token_hex(4), "phase": "new"} | made
            record.data["spec"] = spec.model_dump(mode="json")
            record.data["options"] = options.model_dump(mode="json")
            record.save()
            if record.data["phase"] != "ready" or _health(work).state is not State.READY:
                _build(work, self._contact)
            progress("ready", 1.0)
            return _describe(record.folder, record.data)

    # -- looking --------------------------------------------------------------------------------

    def status(self, name: str) -> Status:
        """See `Site.status`; the last known state if the cloud cannot be asked."""
        data = self._records.read(name)
        if not data:
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        try:
            # Only a look: nothing is written, and failed calls are not repeated.
            work = self._work(Record(self._records.folder(name), data), silent, ())
            status = _health(work)
            return replace(status, detail=status.detail + self._strays(work))
        except HotbedError as error:
            state = State.READY if data["phase"] == "ready" else State.BUILDING
            state = State.FAILED if self._is_over(data) else state
            detail = f"as known last; not asked now: {str(error).rstrip('.')}"
            return Status(state, detail, {}, _ends_at(data))

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        """See `Site.find`. The cloud is asked only if the lease seems to be over."""
        data = self._records.read(name) or {}
        if not data.get("nodes") or not (partly or data["phase"] == "ready"):
            return None
        if self._is_over(data) and not partly and self.status(name).state is not State.READY:
            return None
        return _describe(self._records.folder(name), data)

    # -- later ----------------------------------------------------------------------------------

    def extend(self, name: str, seconds: float) -> Status:
        """See `Site.extend`. UserError: the policy, or the spec's lease.prolong, does not allow it.
        SiteError: not now (`retry_after_s` says when), or somebody else has the machines then, or
        there is no lease to extend."""
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

    def _let_go(self, record: Record, progress: Progress) -> None:
        if record.data and record.entries():  # else nothing was ever asked for
            _remove_all(self._work(record, progress))

    # -- inside ---------------------------------------------------------------------------------

    def _is_over(self, data: Mapping[str, Any]) -> bool:
        ends = _ends_at(data)
        return ends is not None and ends <= self._clock.now()

    def _options_of(self, spec: TestbedSpec) -> ChameleonOptions:
        options = read_options(spec.site.options, f"spec {spec.name}: site.options")
        check_spec(spec, options)
        refuse_network(spec, self.kind)
        return options

    def _work(
        self, record: Record, progress: Progress, pauses_s: tuple[float, ...] = PAUSES_S
    ) -> Work:
        options = read_options(record.data["options"], str(record.folder / "record.json"))
        spec = TestbedSpec.model_validate(record.data["spec"])
        cloud = self._connect(options.site, options.project)
        work = Work(record, spec, options, cloud, self._clock, progress, pauses_s)
        _require_owner(work)
        return work

    def _strays(self, work: Work) -> str:
        """List Hotbed's things of no testbed on this machine (another machine's, or of a lost
        record), once for each of Chameleon's sites and projects."""
        where, cloud = (work.options.site, work.options.project), work.cloud
        if where in self._listed_strays:
            return ""
        self._listed_strays.add(where)
        kept = {name: self._records.read(name) for name in self._records.names()}
        bases = [base_name(name, data["tag"]) for name, data in kept.items() if data]
        try:
            me = cloud.identity()
            named = [("server", server.name) for server in cloud.servers("hotbed-")]
            named += [
                ("lease", lease.name)
                for lease in cloud.leases()
                if (lease.user_id, lease.project_id) == (me.user_id, me.project_id)
                and lease.status != "TERMINATED"
            ]
            named += [("floating IP", ip.description or "") for ip in cloud.floating_ips()]
            named += [("key pair", name) for name in cloud.keypairs()]
            named += [("security group", group.name) for group in cloud.security_groups()]
        except CloudError:
            return ""  # listed another time
        found = [
            f"{kind} {name}"
            for kind, name in named
            if name.startswith("hotbed-") and not any(belongs(name, base) for base in bases)
        ]
        return f"; of no testbed on this machine: {', '.join(found)}" if found else ""


# -- coming up ----------------------------------------------------------------------------------


def _require_same(record: Record, spec: TestbedSpec, options: ChameleonOptions) -> None:
    """Check that only options of the next lease and waiting times have changed."""

    def lasting(options: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: options[name] for name in options if name not in ("lease", "patience")}
        return kept | {"lease.name": options["lease"]["name"]}

    before = TestbedSpec.model_validate(record.data["spec"])
    then, now = (
        lasting(each.model_dump(mode="json"))
        for each in (read_options(record.data["options"]), options)
    )
    if before.digest() != spec.digest() or then != now:
        raise other_spec(record.name)


def _require_owner(work: Work) -> None:
    """Check that the credentials are the owner's: others cannot see the testbed's lease. UserError:
    they are of another user or project."""

    def words(who: Mapping[str, str]) -> str:
        user, project = who["user_name"] or who["user_id"], who["project_name"] or who["project_id"]
        return f"user {user} in project {project}"

    here = asdict(work.ask("asking who we are", work.cloud.identity))
    owner = work.record.data.get("owner", here)
    if any(owner[key] != here[key] for key in ("user_id", "project_id")):
        raise UserError(
            f"testbed {work.record.name!r} on {work.options.site} was made by {words(owner)}, and "
            f"these credentials are of {words(here)}, who cannot see its lease; nothing "
            "was changed",
            do="load the openrc file (OS_* variables) that it was made with, and try again",
        )


def _outlook(work: Work) -> str:
    """Describe when and on what the testbed could start; changes nothing. UserError: the site has
    no such machines, or not that many. SiteError: it cannot be asked."""
    flavors = _flavors(work)
    if flavors is not None:
        return "as " + ", ".join(f"{group}: {flavor.name}" for group, flavor in flavors.items())
    now = work.clock.now()
    slot = look_for_slot(work, wanted_reservations(work.spec, work.options), now)
    if slot is None:
        return "which does not show what is free"
    assert slot.start_s is not None
    return "free now" if slot.start_s <= now else f"free from {moment(slot.start_s)}"


def _build(work: Work, contact: Contact) -> None:
    """Make everything that is missing, then record the nodes. SiteError, UserError: see
    `Site.provision`."""
    record, spec = work.record, work.spec
    record.data["phase"] = "building"
    record.save()
    flavors = _flavors(work)
    wanted = wanted_reservations(spec, work.options, flavors)
    base = make_base(work)
    lease = hold_lease(work, wanted)
    found = hold_servers(work, wanted_servers(work, base, match_reservations(lease, wanted)))
    servers = {node: found[work.server_name(node)] for node in spec.node_names()}
    admin = next(group.name for group in spec.groups if "admin" in group.roles)
    public = None
    if work.options.floating_ip == "admin":
        work.progress("giving the admin node its address", 0.72)
        public = hold_floating_ip(work, servers[admin])
    # Before its set-up a node is reached by the image's user.
    nodes = _draft_nodes(work, servers, admin, public)
    draft = testbed_in(record.folder, ChameleonSite.kind, spec, nodes)
    prepared = prepare_nodes(work, draft, servers, contact)
    if flavors is not None:
        types = {node: flavors[g.name].name for g in spec.groups for node in g.node_names()}
    else:
        by_machine = {
            str(host.get("uid")): host.get("node_type") for host in listed_hosts(work) or ()
        }
        types = {node: by_machine.get(server.host) for node, server in servers.items()}
    described = []
    for node in draft.nodes:
        facts = prepared[node.name]["facts"]
        signal, pressure_file = signal_of(work.options.signal, facts)
        about = {
            "site": work.options.site,
            "machine": servers[node.name].host,
            "type": types[node.name],
            "image": f"{work.options.image} ({base['image_id']})",
            "product": str(facts.get("product", "")),
        }
        made = {
            "roles": sorted(node.roles),
            "ssh_user": "root",
            "devices": dict(prepared[node.name]["devices"]),
            "signal": signal,
            "pressure_file": pressure_file,
            "cpus": float(facts["cpus"]),
            "facts": {name: value for name, value in about.items() if value},
        }
        described.append(asdict(node) | made)
    record.data |= {"nodes": described, "phase": "ready"}
    record.save()


def _flavors(work: Work) -> dict[str, Any] | None:
    """Return each group's flavor, None for whole machines."""
    if not work.options.virtual:
        return None
    known = work.ask("looking for flavors", work.cloud.flavors)
    return choose_flavors(work.spec, work.options, known)


def _draft_nodes(
    work: Work, servers: Mapping[str, NovaServer], admin: str, public: str | None
) -> tuple[Node, ...]:
    racks = work.spec.rack_of()
    return tuple(
        Node(
            name=name,
            address=servers[name].addresses[0],
            roles=frozenset(group.roles),
            group=group.name,
            ssh_user=work.options.ssh_user,
            memory_bytes=group.memory,
            rack=racks.get(name),
            public_address=public if name == admin else None,
            via=admin if public is not None and name != admin else None,
        )
        for group in work.spec.groups
        for name in group.node_names()
    )


def _describe(folder: Path, data: Mapping[str, Any]) -> Testbed:
    """Return the testbed of a record with nodes."""
    nodes = tuple(Node(**{**node, "roles": frozenset(node["roles"])}) for node in data["nodes"])
    spec = TestbedSpec.model_validate(data["spec"])
    return testbed_in(folder, ChameleonSite.kind, spec, nodes)


# -- health -------------------------------------------------------------------------------------


def _health(work: Work) -> Status:
    """Return the testbed's status by the cloud."""
    data, now = work.record.data, work.clock.now()
    known = data.get("lease")
    lease = known and work.ask("looking at the lease", lambda: work.cloud.lease(known["id"]))
    found = work.ask("looking at the servers", lambda: work.cloud.servers(work.base))
    servers = {server.name: server.status for server in found}
    words = {"ACTIVE": "running", "SHUTOFF": "stopped", "BUILD": "building"}
    names = work.spec.node_names()
    states = {name: servers.get(work.server_name(name), "absent") for name in names}
    nodes = {name: words.get(state, state.lower()) for name, state in states.items()}
    if not known:
        return Status(State.BUILDING, "there is no lease yet", nodes)
    if lease is None or lease.status not in LIVE or lease.end_s <= now:
        end_s = float(known["end_s"]) if lease is None else lease.end_s
        if lease is not None and lease.status == "ERROR":
            said = f"{broken_words(lease)}: `hotbed up` removes it"
        else:
            how = f"has ended ({moment(end_s)})"
            if end_s > now:
                how = f"was ended early, by somebody or by the site (its end was {moment(end_s)})"
            said = f"the lease {how}: `hotbed up` again leases anew"
        return Status(State.FAILED, said, nodes, min(end_s, now))
    if lease.status == "PENDING" and lease.start_s > now:
        begins = f"the lease starts {moment(lease.start_s)}, in {format_s(lease.start_s - now)}"
        return Status(State.PENDING, begins, nodes, lease.end_s)
    running = sum(state == "running" for state in nodes.values())
    detail = f"{running} of {len(names)} nodes run"
    if data["phase"] != "ready":
        return Status(State.BUILDING, detail, nodes, lease.end_s)
    if running < len(names):
        return Status(State.FAILED, detail, nodes, lease.end_s)
    until = f"the lease ends {moment(lease.end_s)}, in {format_s(lease.end_s - now)}"
    return Status(State.READY, f"{detail}; {until}", nodes, lease.end_s)


def _ends_at(data: Mapping[str, Any]) -> float | None:
    """Return the recorded end of the lease."""
    return float(data["lease"]["end_s"]) if data.get("lease") else None


# -- going down ---------------------------------------------------------------------------------


def _remove_all(work: Work) -> None:
    """Remove everything that was made for the testbed and nothing else. Safe to repeat. SiteError:
    something could not be removed, or a lease may still appear; the next call resumes."""
    base, cloud = work.base, work.cloud
    try:
        work.progress("removing floating IPs", 0.05)
        ips = work.ask("looking for floating IPs", cloud.floating_ips)
        mine = {ip.id for ip in ips if belongs(ip.description or "", base)}
        work.remove_each("removing floating IPs", mine, cloud.delete_floating_ip)
        remove_servers(work, 0.1, 0.75)
    except SiteError:
        end_leases(work)  # the lease costs, so it ends even if something else stays
        raise
    work.progress("removing the lease", 0.8)
    end_leases(work)
    work.progress("removing keys and rules", 0.9)
    groups = work.ask("looking for security groups", cloud.security_groups)
    ours = {group.id for group in groups if group.name == base}
    work.remove_each("removing the security group", ours, cloud.delete_security_group)
    pairs = {base} & set(work.ask("looking for key pairs", cloud.keypairs))
    work.remove_each("removing the key pair", pairs, cloud.delete_keypair)
    # Once the record is forgotten, nobody would end a lease that appears after a lost answer.
    for _ in work.polls(WATCH_S):
        if not unanswered(work):
            return
        work.progress("looking for a lease that was asked for without an answer", 0.95)
        end_leases(work)
    if asked_s := unanswered(work):
        until = max(asked_s) + LATE_S
        raise work.failed(
            f"a lease was asked for at {moment(max(asked_s))}, the answer never came, and it may "
            f"still appear until {moment(until + 59)}: repeat `hotbed down {work.record.name}` "
            "then, which ends it and forgets the testbed; all else is removed",
            until - work.clock.now(),
        )
