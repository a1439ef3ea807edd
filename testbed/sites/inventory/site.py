"""The inventory site: existing machines, held for a testbed while it is up.

On a machine it makes a mark that names the holder, the testbed's key among root's authorized keys,
and the nodes' names in /etc/hosts; it wipes only devices that were named, each once. Release takes
the store and these away and nothing else. Every change is journalled before it is asked for and may
be repeated, so that after a crash anywhere `up` resumes and `down` removes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from schemas.errors import HotbedError, RemoteError, UserError
from testbed import reach
from testbed.deploy import deployers, deployment
from testbed.sites import keys
from testbed.sites.clock import Clock
from testbed.sites.contract import (
    Cost,
    Doomed,
    HostFindings,
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
from testbed.sites.inventory import fitness
from testbed.sites.inventory.assign import Member, assign, some
from testbed.sites.inventory.contact import (
    RETRY_S,
    Contact,
    FirstLook,
    addresses_of,
    all_or_error,
    ask,
    everywhere,
    first_target,
    gateway_of,
    gateways_of,
    login_on,
    looking,
)
from testbed.sites.inventory.hosts import check_consent, machines_of, read_options
from testbed.sites.inventory.recorded import RecordedSite, testbed_in
from testbed.sites.records import Record, Records
from testbed.spec import TestbedSpec
from testbed.ssh import Shell

TakeAway = Callable[[Testbed, Progress], None]
"""Function that removes a deployed store from a testbed's nodes."""


class InventorySite(RecordedSite):
    """Site of existing machines; also a `CautiousSite`, `InspectingSite` and `UsageSite`. Testbeds
    that are up need no options. `contact` reaches machines, `take_away` removes a deployed
    store."""

    kind = fitness.KIND

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        *,
        records: Records | None = None,
        contact: Contact | None = None,
        clock: Clock | None = None,
        take_away: TakeAway | None = None,
    ) -> None:
        self.options = read_options(options or {})
        super().__init__(records, contact, clock)
        self._take_away = take_away or partial(deployment.take_away, self)
        self._allowed = set(self.options.wipe)
        self._accept = self.options.accept_host_keys

    # -- the contract ---------------------------------------------------------------------------

    def plan(self, spec: TestbedSpec) -> Cost:
        """See `Site.plan`. The machines are not asked; `inspect` does."""
        members = self._members(spec)
        machines = some((member.host.name for member in members), 6)
        return Cost.of(spec, f"existing machines: {machines}")

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        with self._records.open(spec.name) as record:
            if record.data:
                self._require_same(record.data, spec)
            else:
                members = self._members(spec)
                with self._looking(members, lambda what, x: progress(what, 0.5 * x)) as found:
                    record.data = self._new_record(spec, members, found)
                record.save()
            return self._take(record, progress)

    def status(self, name: str) -> Status:
        """See `Site.status`. Every machine is asked for its holder."""
        known = self._records.read(name)
        if known is None:
            if name in self._records.names():
                return Status(State.BUILDING, "leftovers of a testbed without a record")
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        nodes, testbed = [member.node for member in members_of(known)], self._testbed(name, known)
        if not known["ready"]:
            states = {node: "held" if node in known["held"] else "free" for node in nodes}
            if known.get("releasing"):
                detail = f"half removed: run `hotbed down {name}` again"
            else:
                detail = "partly there: run `hotbed up` again"
            return Status(State.BUILDING, detail, states)

        def state(node: str) -> str:
            mark = ask(self._shell(testbed, node), "mark")["mark"] or {}
            return "running" if mark.get("id") == known["id"] else "not ours"

        found, lost = everywhere(nodes, state)
        states = {node: "lost" if node in lost else found[node] for node in nodes}
        bad = [f"{node} ({state})" for node, state in states.items() if state != "running"]
        if bad:
            return Status(State.FAILED, f"not to be used: {', '.join(bad)}", states)
        return Status(State.READY, f"{len(states)} machines answer", states)

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        known = self._records.read(name)
        there = known and (known["ready"] or partly)
        return self._testbed(name, known) if known and there else None

    def extend(self, name: str, seconds: float) -> Status:
        """See `Site.extend`: these machines are not leased."""
        return self.status(name)

    # -- capabilities ---------------------------------------------------------------------------

    def doomed(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[Doomed]:
        """See `CautiousSite.doomed`; nothing for a testbed that has its devices already."""
        if self._records.read(spec.name) is not None:
            return ()
        members = self._members(spec)
        with self._looking(members, progress) as found:
            found.require()
        doomed = fitness.doomed_of(members, found.surveys)
        return tuple(one for one in doomed if one.name not in self._allowed)

    def allow(self, devices: Collection[str] = (), *, host_keys: bool = False) -> None:
        for name in devices:
            try:
                self._allowed.add(check_consent(name))
            except ValueError as error:
                raise UserError(error) from None
        self._accept = self._accept or host_keys

    def leftovers(self, name: str, progress: Progress = silent) -> Sequence[Doomed]:
        testbed, known = self._ready(name), self._records.read(name) or {}
        return _leftovers(known, self._surveys(testbed, progress))

    def wipe(self, name: str, devices: Collection[str], progress: Progress = silent) -> None:
        """See `CautiousSite.wipe`. UserError: a name is of no device of the testbed, or of a device
        in use. SiteError: a machine did not answer, or a device became another in between."""
        testbed = self._ready(name)
        with self._records.open(name) as record:
            fitness.require_known(devices, members_of(record.data))
            surveys = self._surveys(testbed, progress)
            for one in sorted(devices):
                path, _, node = one.rpartition("@")
                seen = surveys[node]["devices"][path]
                problem = fitness.device_problem(seen)
                if problem is None and seen["osd"]:
                    problem = (
                        f"{path} is the store of an OSD ({seen['osd']}): remove that first "
                        "(`hotbed deploy --remove`)"
                    )
                if problem is not None:
                    raise UserError(problem, where=f"node {node}")
            doomed = [one for one in _leftovers(record.data, surveys) if one.name in devices]
            record.data["doomed"] = [_remembered(one, surveys[one.node]) for one in doomed]
            record.save()
            try:
                self._wipe_allowed(record, progress)
            except HotbedError:
                record.data["doomed"] = []  # allowed for this call only
                record.save()
                raise

    def inspect(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[HostFindings]:
        known = self._records.read(spec.name)
        members = members_of(known) if known is not None else self._members(spec)
        with self._looking(members, progress) as found:
            return fitness.inspect(
                spec,
                members,
                found,
                self._contact,
                own=known["id"] if known is not None else None,
                signal=self.options.signal,
                clock=self._clock,
            )

    # -- judging --------------------------------------------------------------------------------

    def _members(self, spec: TestbedSpec) -> tuple[Member, ...]:
        """Assign machines to nodes, without those that this user's other testbeds hold."""
        refuse_network(spec, self.kind)
        taken = set[Hashable]()
        for name in self._records.names():
            known = self._records.read(name) if name != spec.name else None
            taken |= {member.host.where for member in members_of(known)} if known else set()
        return assign(spec, self.options, machines_of(self.options), taken)

    def _require_same(self, known: Mapping[str, Any], spec: TestbedSpec) -> None:
        """Raise UserError if the testbed is of another spec, or on machines that the options no
        longer name."""
        before = TestbedSpec.model_validate(known["spec"])
        kept = ("nodes", "devices", "signal")
        now, then = (
            [each.digest(), *(each.site.options.get(option) for option in kept)]
            for each in (spec, before)
        )
        if now != then:
            raise other_spec(spec.name)
        machines = machines_of(self.options)
        named = {host.address for host in machines.hosts}
        gone = [
            member.host.address
            for member in members_of(known)
            if member.host.address not in named and member.host.name not in machines.unusable
        ]
        if gone:
            raise UserError(
                f"testbed {spec.name!r} is on machines that are no longer named: {', '.join(gone)}",
                do=f"take it down first (`hotbed down {spec.name}`), or name them again",
            )

    def _looking(
        self, members: Sequence[Member], progress: Progress
    ) -> AbstractContextManager[FirstLook]:
        # Without a file, those in which ssh itself looks for this user's host keys.
        files = [Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts")]
        given = self.options.known_hosts
        if given:
            files = [Path(given).expanduser()]
            if not files[0].is_file():
                raise UserError(
                    f"{files[0]} is no file",
                    where="site.options.known_hosts",
                    do=(
                        "name one with the host keys of the machines (a relative path starts at "
                        "the spec's folder)"
                    ),
                )
        return looking(members, self._contact, files, self._accept, progress)

    def _new_record(
        self, spec: TestbedSpec, members: Sequence[Member], found: FirstLook
    ) -> dict[str, Any]:
        """Return the record of a new testbed on machines that were looked at. Changes nothing.
        UserError, SiteError: the machines are not fit; one sentence says why."""
        found.require()
        surveys = found.surveys
        fitness.require(spec, members, surveys)
        addresses, problems = addresses_of(members, found.logins)
        for problem in problems.values():
            raise problem
        signal = fitness.signal_of(self.options.signal, surveys)
        doomed = fitness.doomed_of(members, surveys)
        fitness.require_consent(doomed, self._allowed, members)
        return {
            "id": uuid.uuid4().hex,
            "since": datetime.fromtimestamp(self._clock.now(), UTC).isoformat(timespec="seconds"),
            "spec": spec.model_dump(mode="json"),
            "members": [member.model_dump(mode="json") for member in members],
            "addresses": addresses,
            "keys": [[address, port, listed] for (address, port), listed in found.keys.items()],
            "facts": {node: _facts_of(survey) for node, survey in surveys.items()},
            "signal": signal,
            "doomed": [_remembered(one, surveys[one.node]) for one in doomed],
            "held": [],
            "ready": False,
        }

    # -- taking ---------------------------------------------------------------------------------

    def _testbed(self, name: str, known: Mapping[str, Any]) -> Testbed:
        spec, members = TestbedSpec.model_validate(known["spec"]), members_of(known)
        nodes = tuple(_node(member, known) for member in members)
        return testbed_in(self.folder(name), self.kind, spec, nodes, gateways_of(members))

    def _shell(self, testbed: Testbed, node: str) -> Shell:
        """Return a shell by the testbed's own key."""
        return self._contact.shell(reach.target_of(testbed, testbed.node(node)))

    def _as_root(self, member: Member, testbed: Testbed, do: str, **request: Any) -> None:
        """Ask a machine by the testbed's key, or by the user's if that key is not let in."""
        target = replace(reach.target_of(testbed, testbed.node(member.node)), control_dir=None)
        shell, root = self._contact.shell(target), True
        try:
            shell.run(["true"], timeout_s=30.0)
        except RemoteError:
            shell = self._contact.shell(first_target(member.host, testbed.known_hosts))
            root = login_on(shell, member.host.name).root
        ask(shell, do, root=root, **request)

    def _take(self, record: Record, progress: Progress) -> Testbed:
        """Take the machines on record, or resume taking them. SiteError: a machine cannot be taken;
        says if trying again may help."""
        known, by_node = record.data, {member.node: member for member in members_of(record.data)}
        for left in ("releasing", "store_removed"):
            known.pop(left, None)
        keys.make(record.folder / keys.LOGIN, f"hotbed-{record.name}-{known['id'][:8]}")
        public = keys.public(record.folder / keys.LOGIN)
        # Host keys under every name by which the engine or other nodes reach a machine.
        listed = {(address, port): found for address, port, found in known["keys"]}
        for node, member in by_node.items():
            for address in (known["addresses"][node], node):
                found = listed[member.host.address, member.host.port]
                listed.setdefault((address, member.host.port), found)
        keys.pin(record.folder / "known_hosts", listed)
        testbed = self._testbed(record.name, known)
        names = {node.name: node.address for node in testbed.nodes}
        record.journal("ask", what="hold", nodes=list(by_node))
        known["held"] = list(by_node)  # release asks them all, also after a failure here
        record.save()

        def hold(node: str) -> None:
            fields = {"testbed": record.name, "id": known["id"], "since": known["since"]}
            mark = {**fields, "node": node}
            self._as_root(by_node[node], testbed, "hold", mark=mark, key=public, names=names)
            try:
                self._shell(testbed, node).run(["true"], timeout_s=30.0)
            except RemoteError as error:
                raise RemoteError(
                    "root cannot log in with the key just put into /root/.ssh/authorized_keys: "
                    f"{error}",
                    retry=error.retry,
                ) from error

        answers = everywhere(by_node, hold, progress, "holding machines", (0.5, 0.8))
        all_or_error(answers, "cannot take the machine of node")
        record.journal("made", what="hold", nodes=list(by_node))
        self._wipe_allowed(record, progress)
        known["ready"] = True
        record.save()
        progress("ready", 1.0)
        return testbed

    def _wipe_allowed(self, record: Record, progress: Progress) -> None:
        """Wipe what the record allows to wipe, each device once. SiteError: a machine did not
        answer, or a device became another in between."""
        doomed: list[dict[str, Any]] = record.data["doomed"]
        if not doomed:
            return
        testbed = self._testbed(record.name, record.data)
        names = [f"{one['device']}@{one['node']}" for one in doomed]
        record.journal("ask", what="wipe", devices=names)

        def wipe(node: str) -> None:
            shell = self._shell(testbed, node)
            for one in doomed:
                if one["node"] == node:
                    ask(shell, "wipe", device=one["device"], id=record.data["id"], seen=one)

        nodes = dict.fromkeys(one["node"] for one in doomed)
        answers = everywhere(nodes, wipe, progress, "wiping devices", (0.8, 0.95))
        record.data["doomed"] = [one for one in doomed if one["node"] in answers[1]]
        record.save()
        all_or_error(answers, "cannot wipe the devices of node")
        record.journal("made", what="wipe", devices=names)

    def _surveys(self, testbed: Testbed, progress: Progress) -> fitness.Surveys:
        """Survey every node of a testbed that is up. SiteError if a node does not answer."""

        def see(node: str) -> dict[str, Any]:
            devices = sorted(testbed.node(node).devices.values())
            found: dict[str, Any] = ask(self._shell(testbed, node), "survey", devices=devices)
            return found

        nodes = [node.name for node in testbed.nodes]
        answers = everywhere(nodes, see, progress, "looking at devices", (0.0, 0.5))
        return all_or_error(answers, "cannot look at the devices of node")

    # -- letting go: the store first, then mark, names and key; nothing else is touched ----------

    def _let_go(self, record: Record, progress: Progress) -> None:
        """Let every machine go that is still held. One that does not answer is kept on record.
        SiteError: a machine could not be cleaned; says which, and when to try again."""
        known, name = record.data, record.name
        if not known:
            return
        known["ready"], known["releasing"] = False, True
        record.save()
        testbed = self._testbed(name, known)
        kept = self._without_store(record, testbed, progress) if known["held"] else {}
        has_key = testbed.ssh_key.with_suffix(".pub").exists()
        public = keys.public(testbed.ssh_key) if has_key else ""
        by_node = {member.node: member for member in members_of(known)}
        record.journal("ask", what="let go", nodes=known["held"])

        def one(node: str) -> None:
            self._as_root(by_node[node], testbed, "let_go", id=known["id"], key=public)

        able = [node for node in known["held"] if node not in kept]
        free, lost = everywhere(able, one, progress, "letting machines go", (0.7, 0.98))
        lost = {**kept, **lost}
        known["held"] = list(lost)
        record.save()
        record.journal("made", what="let go", nodes=list(free))
        if lost:
            reasons = "; ".join(f"{node}: {str(error).rstrip('.')}" for node, error in lost.items())
            raise SiteError(
                f"testbed {name}: these machines still have what was made on them, and are kept on "
                f"record ({reasons}); run `hotbed down {name}` again when they answer, or, if they "
                f"never will, delete {record.folder}.",
                retry_after_s=RETRY_S,
            )

    def _without_store(
        self, record: Record, testbed: Testbed, progress: Progress
    ) -> dict[str, HotbedError]:
        """Remove a store that was deployed; return the held nodes on which that failed."""
        if not deployers.begun(testbed) or record.data.get("store_removed"):
            return {}
        record.journal("ask", what="remove store")
        held = record.data["held"]
        # Machines that were let go before do not let Hotbed in, and must not be changed.
        ours = replace(testbed, nodes=tuple(node for node in testbed.nodes if node.name in held))
        try:
            self._take_away(ours, lambda what, share: progress(what, 0.7 * share))
        except HotbedError as error:
            failed = {failure.node for failure in getattr(error, "failures", ())}
            # An error that names no machine may be any machine's.
            still = [node for node in held if node in failed] or held
            return dict.fromkeys(still, error)
        record.data["store_removed"] = True
        record.save()
        record.journal("made", what="remove store")
        return {}


# -- records ---------------------------------------------------------------------------------------


def members_of(known: Mapping[str, Any]) -> tuple[Member, ...]:
    """Return the nodes and their machines in a record."""
    return tuple(Member.model_validate(each) for each in known["members"])


def _facts_of(survey: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a survey that is kept; `provenance` goes into results."""
    disks = {
        f"disk {path}": f"{seen.get('model') or 'no model'}, {seen['bytes']} bytes"
        for path, seen in survey["devices"].items()
    }
    facts = {
        "distribution": survey["distribution_name"],
        "kernel": survey["kernel"],
        "cpus": str(survey["cpus"]),
        "cpu": survey["cpu_model"],
        "memory_bytes": str(survey["memory_bytes"]),
        **disks,
    }
    return {"cpus": survey["cpus"], "memory_bytes": survey["memory_bytes"], "provenance": facts}


def _node(member: Member, known: Mapping[str, Any]) -> Node:
    address, facts = known["addresses"][member.node], known["facts"][member.node]
    host, signal = member.host, known["signal"]
    return Node(
        name=member.node,
        address=address,
        roles=frozenset(member.roles),
        group=member.group,
        ssh_port=host.port or 22,
        devices=dict(member.devices),
        signal=signal,
        pressure_file=fitness.PSI_FILE if signal == "io_pressure" else None,
        cpus=float(facts["cpus"]),
        memory_bytes=min(member.memory_bytes, facts["memory_bytes"]),
        rack=member.rack,
        public_address=host.address if host.address != address else None,
        via=gateway.name if (gateway := gateway_of(host)) else None,
        facts=facts.get("provenance") or facts["told"],  # its name in earlier records
    )


def _remembered(one: Doomed, survey: Mapping[str, Any]) -> dict[str, Any]:
    """Return a device that may be wiped, with its identity, for its name may move on."""
    seen = survey["devices"][one.device]
    more = {"identity": seen["identity"], "uuids": seen["uuids"], "boot_id": survey["boot_id"]}
    return {**asdict(one), **more}


def _leftovers(known: Mapping[str, Any], surveys: fitness.Surveys) -> tuple[Doomed, ...]:
    """Return devices that hold something, are unused and are no OSD's."""
    found = fitness.doomed_of(members_of(known), surveys)
    seen = {one.name: surveys[one.node]["devices"][one.device] for one in found}
    return tuple(one for one in found if not (seen[one.name]["uses"] or seen[one.name]["osd"]))
