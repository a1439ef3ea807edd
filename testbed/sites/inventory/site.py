"""The inventory site: existing machines, held for a testbed while it is up.

On a machine it makes a mark that names the holder, the testbed's key among root's authorized keys,
and the nodes' names in /etc/hosts; it wipes only devices that were named. Release takes the store
and these away and nothing else. Every change is journalled before it is asked for and may be
repeated, so that after a crash anywhere `up` resumes and `down` removes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from testbed import reach
from testbed.deploy.inventory import cluster_id
from testbed.deploy.playbook import end_ansible
from testbed.sites.clock import Clock, SystemClock
from testbed.sites.contract import (
    Capability,
    Cost,
    Doomed,
    HostFindings,
    MachineUsage,
    Progress,
    State,
    Status,
    Testbed,
    silent,
)
from testbed.sites.inventory import fitness, holding, usage
from testbed.sites.inventory.assign import Member, assign
from testbed.sites.inventory.contact import (
    Contact,
    FirstLook,
    OpenSsh,
    Trust,
    all_or_error,
    ask,
    default_files,
    everywhere,
    look,
    looking,
)
from testbed.sites.inventory.holding import TakeAway, members_of, shell_of, testbed_of
from testbed.sites.inventory.hosts import check_consent, machines_of, read_options
from testbed.sites.own_network import refuse_settings
from testbed.sites.records import Records
from testbed.spec import TestbedSpec


class InventorySite:
    """Site of existing machines; also a `CautiousSite`, `InspectingSite` and `UsageSite`.

    Args:
        options: see `testbed.sites.inventory.hosts`; testbeds that are up need none.
        records: records of testbeds; by default the user's.
        contact: access to machines; by default OpenSSH.
        clock: gives the time of marks.
        take_away: removes a deployed store; by default `testbed.deploy.deployment.take_away`.
    """

    kind = fitness.KIND
    capabilities = frozenset({Capability.USAGE})

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
        self._records = records or Records(self.kind)
        self._contact = contact or OpenSsh()
        self._clock = clock or SystemClock()
        self._take_away = take_away or self._take_store_away
        self._allowed = set(self.options.wipe)
        self._accept = self.options.accept_host_keys

    # -- the contract ---------------------------------------------------------------------------

    def plan(self, spec: TestbedSpec) -> Cost:
        """See `Site.plan`. The machines are not asked; `inspect` does."""
        members = self._members(spec)
        machines = ", ".join(member.host.name for member in members[:6])
        more = f" and {len(members) - 6} more" if len(members) > 6 else ""
        return Cost(
            node_hours=0.0,
            nodes=len(members),
            disk_bytes=sum(g.count * g.disks * g.disk.size for g in spec.groups if g.disk),
            memory_bytes=sum(group.count * group.memory for group in spec.groups),
            detail=f"machines that are there: {machines}{more}",
        )

    def provision(self, spec: TestbedSpec, progress: Progress = silent) -> Testbed:
        """See `Site.provision`."""
        with self._records.open(spec.name) as record:
            known = record.data
            if known and not self._same(known, spec):
                raise UserError(
                    f"a testbed {spec.name!r} of another spec is there",
                    do=(
                        f"take it down first (`hotbed down {spec.name}`) or give this one "
                        "another name (--name)"
                    ),
                )
            if known:
                self._require_named(known, spec.name)
            else:
                members = self._members(spec)
                with looking(self._contact) as folder:
                    found = self._look(members, folder, lambda what, x: progress(what, 0.5 * x))
                    record.data = holding.judged(
                        spec,
                        members,
                        found,
                        signal=self.options.signal,
                        allowed=self._allowed,
                        clock=self._clock,
                    )
                record.save()
            return holding.take(record, self._contact, progress)

    def status(self, name: str) -> Status:
        """See `Site.status`. Every machine is asked who holds it."""
        known = self._records.read(name)
        if known is None:
            if name in self._records.names():
                return Status(State.BUILDING, "leftovers of a testbed without a record")
            return Status(State.ABSENT, f"there is no testbed {name!r}")
        members, testbed = members_of(known), testbed_of(self._records.folder(name), known)
        if not known["ready"]:
            states = {m.node: "held" if m.node in known["held"] else "free" for m in members}
            if known.get("releasing"):
                detail = f"half removed: run `hotbed down {name}` again"
            else:
                detail = "partly there: run `hotbed up` again"
            return Status(State.BUILDING, detail, states)

        def holder(node: str) -> object:
            mark = ask(shell_of(self._contact, testbed, node), "mark")["mark"]
            return (mark or {}).get("id")

        answers = everywhere([member.node for member in members], holder)
        states = {
            member.node: "lost"
            if member.node in answers.lost
            else "running"
            if answers.found[member.node] == known["id"]
            else "not ours"
            for member in members
        }
        bad = [f"{node} ({state})" for node, state in states.items() if state != "running"]
        if bad:
            return Status(State.FAILED, f"not to be used: {', '.join(bad)}", states)
        return Status(State.READY, f"{len(states)} machines answer", states)

    def find(self, name: str, *, partly: bool = False) -> Testbed | None:
        """See `Site.find`."""
        known = self._records.read(name)
        there = known and (known["ready"] or partly)
        return testbed_of(self._records.folder(name), known) if known and there else None

    def folder(self, name: str) -> Path:
        """See `Site.folder`."""
        return self._records.folder(name)

    def names(self) -> Sequence[str]:
        """See `Site.names`."""
        return self._records.names()

    def extend(self, name: str, seconds: float) -> Status:
        """See `Site.extend`: these machines are not leased."""
        return self.status(name)

    def release(self, name: str, progress: Progress = silent) -> None:
        """See `Site.release`. Where a machine does not answer, the others are let go and this one
        is kept on record: repeat it when the machine is back.

        Raises:
            SiteError: a machine could not be cleaned; says which, and when to try again.
        """
        if name not in self._records.names():
            progress("removed", 1.0)
            return
        with self._records.open(name) as record:
            if record.data:
                holding.let_go(record, self._contact, self._take_away, progress)
            end_ansible(record.folder)
            reach.hang_up(name, record.folder, record.folder / "known_hosts")
            self._records.remove(name)
        progress("removed", 1.0)

    # -- capabilities ---------------------------------------------------------------------------

    def doomed(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[Doomed]:
        """See `CautiousSite.doomed`; nothing for a testbed that has its devices already."""
        known = self._records.read(spec.name)
        if known is not None:
            return ()
        members = self._members(spec)
        with looking(self._contact) as folder:
            found = self._look(members, folder, progress)
            found.require()
        doomed = fitness.doomed_of(members, found.surveys)
        return tuple(one for one in doomed if one.name not in self._allowed)

    def allow(self, devices: Collection[str] = (), *, host_keys: bool = False) -> None:
        """See `CautiousSite.allow`."""
        for name in devices:
            try:
                self._allowed.add(check_consent(name))
            except ValueError as error:
                raise UserError(error) from None
        self._accept = self._accept or host_keys

    def leftovers(self, name: str, progress: Progress = silent) -> Sequence[Doomed]:
        """See `CautiousSite.leftovers`."""
        testbed = self._ready(name)
        known = self._records.read(name) or {}
        return holding.leftovers(known, holding.surveys_of(self._contact, testbed, progress))

    def wipe(self, name: str, devices: Collection[str], progress: Progress = silent) -> None:
        """See `CautiousSite.wipe`."""
        self._ready(name)
        with self._records.open(name) as record:
            holding.wipe_named(record, self._contact, devices, progress)

    def inspect(self, spec: TestbedSpec, progress: Progress = silent) -> Sequence[HostFindings]:
        """See `InspectingSite.inspect`."""
        known = self._records.read(spec.name)
        members = members_of(known) if known is not None else self._members(spec)
        with looking(self._contact) as folder:
            found = self._look(members, folder, progress)
            return fitness.inspect(
                spec,
                members,
                found,
                self._contact,
                own=known["id"] if known is not None else None,
                signal=self.options.signal,
                clock=self._clock,
            )

    def usage_counters(self, name: str) -> Mapping[str, float]:
        """See `UsageSite.usage_counters`."""
        testbed = self._ready(name)
        nodes = [node.name for node in testbed.nodes]
        fsid = cluster_id(testbed)
        answers = everywhere(
            nodes, lambda node: ask(shell_of(self._contact, testbed, node), "usage", fsid=fsid)
        )
        return usage.counters(
            all_or_error(answers, "the load cannot be read:"), self._clock.monotonic()
        )

    def usage_between(
        self, before: Mapping[str, float], after: Mapping[str, float]
    ) -> MachineUsage:
        """See `UsageSite.usage_between`."""
        return usage.between(before, after)

    # -- inside ---------------------------------------------------------------------------------

    def _members(self, spec: TestbedSpec) -> tuple[Member, ...]:
        refuse_settings(spec, self.kind)
        return assign(spec, self.options, machines_of(self.options), self._taken(spec.name))

    def _taken(self, but: str) -> set[Any]:
        """Return the machines that this user's other testbeds hold."""
        found = set()
        for name in self._records.names():
            known = self._records.read(name) if name != but else None
            if known is not None:
                found |= {member.host.where for member in members_of(known)}
        return found

    def _same(self, known: Mapping[str, Any], spec: TestbedSpec) -> bool:
        before = TestbedSpec.model_validate(known["spec"])
        same_devices = all(
            spec.site.options.get(option) == before.site.options.get(option)
            for option in ("nodes", "devices", "signal")
        )
        return before.digest() == spec.digest() and same_devices

    def _require_named(self, known: Mapping[str, Any], name: str) -> None:
        """Raise UserError if the testbed has machines that the options no longer name."""
        machines = machines_of(self.options)
        named = {host.address for host in machines.hosts}
        gone = [
            member.host.address
            for member in members_of(known)
            if member.host.address not in named and member.host.name not in machines.unusable
        ]
        if gone:
            raise UserError(
                f"testbed {name!r} is on machines that are no longer named ({', '.join(gone)})",
                do=f"take it down first (`hotbed down {name}`), or name them again",
            )

    def _trust(self) -> Trust:
        given = self.options.known_hosts
        files = (Path(given).expanduser(),) if given else default_files()
        if given and not files[0].is_file():
            raise UserError(
                f"site.options.known_hosts: {files[0]} is no file",
                do=(
                    "name one with the host keys of the machines (a relative path starts at "
                    "the spec's folder)"
                ),
            )
        return Trust(files, self._accept)

    def _look(self, members: Sequence[Member], folder: Path, progress: Progress) -> FirstLook:
        return look(members, self._contact, self._trust(), folder, progress)

    def _take_store_away(self, testbed: Testbed, progress: Progress) -> None:
        from testbed.deploy.deployment import take_away

        take_away(self, testbed, progress)

    def _ready(self, name: str) -> Testbed:
        found = self.find(name)
        if found is None:
            raise UserError(f"there is no testbed {name!r} that is ready", do="see `hotbed status`")
        return found
