"""Taking away everything that was made for a testbed, and nothing else.

What is ours is known twice: every name that we give begins with the testbed's base, which no other
testbed has, and the journal has the ids. So nothing is lost by a crash between a call and its
answer. A lease that was there before us stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.sites.chameleon.cloud import Cloud, CloudError, Fault, Lease
from testbed.sites.chameleon.errors import when
from testbed.sites.chameleon.owner import belongs_to
from testbed.sites.chameleon.servers import remove_each, remove_servers
from testbed.sites.chameleon.whose import LATE_S, claim, is_ours, lease_name, unanswered
from testbed.sites.chameleon.work import POLL_S, Work, belongs
from testbed.sites.contract import SiteError

PREFIX = "hotbed-"
WATCH_S = 60.0
"""How long a lease is looked for that was asked for without an answer."""


def remove_all(work: Work) -> None:
    """See the module. Safe to repeat.

    Raises:
        SiteError: something could not be removed, or a lease may still come to be; the next call
            goes on.
    """
    base, cloud = work.base, work.cloud
    try:
        _remove_floating_ips(work)
        remove_servers(work, 0.1, 0.75)
    except SiteError:
        _end_leases(work)  # it is the lease that costs, whatever of it does not go
        raise
    work.progress("removing the lease", 0.8)
    _end_leases(work)
    work.progress("removing keys and rules", 0.9)
    groups = work.ask("looking for security groups", cloud.security_groups)
    ours = {group.id for group in groups if group.name == base}
    remove_each(work, "removing the security group", ours, cloud.delete_security_group)
    if base in work.ask("looking for key pairs", cloud.keypairs):
        remove_each(work, "removing the key pair", [base], cloud.delete_keypair)
    _await_askings(work)


def _remove_floating_ips(work: Work) -> None:
    work.progress("removing floating IPs", 0.05)
    ips = work.ask("looking for floating IPs", work.cloud.floating_ips)
    made = _made(work, "floating ip")
    mine = {ip.id for ip in ips if belongs(ip.description, work.base) or ip.id in made}
    remove_each(work, "removing floating IPs", mine, work.cloud.delete_floating_ip)


def _end_leases(work: Work) -> None:
    for lease in leases_to_end(work):
        claim(work, lease)
        _end(work, lease)


def _await_askings(work: Work) -> None:
    """A lease whose asking was interrupted may come to light after all that was there is gone; with
    the record forgotten nobody would end it."""
    end = work.clock.monotonic() + WATCH_S
    while askings := unanswered(work):
        if work.clock.monotonic() >= end:
            asked, until = max(askings), max(askings) + LATE_S
            raise SiteError(
                f"{work.options.site}: a lease was asked for at {when(asked)}, the answer never "
                f"came, and it may still come to be until {when(until + 59)}: repeat `hotbed down "
                f"{work.record.name}` then, which ends it and forgets the testbed; all else is "
                "removed",
                retry_after_s=until - work.now(),
            )
        work.progress("looking for a lease whose answer never came", 0.95)
        work.clock.sleep(POLL_S)
        _end_leases(work)


def leases_to_end(work: Work) -> list[Lease]:
    """Leases that we made and that are still listed."""
    identity = work.ask("asking who we are", work.cloud.identity)
    made = _made(work, "lease")
    return [
        lease
        for lease in work.ask("looking for the lease", work.cloud.leases)
        if belongs_to(lease, identity)
        and (lease.id in made or (lease.name == lease_name(work) and is_ours(work, lease)))
    ]


def _end(work: Work, lease: Lease) -> None:
    def end() -> None:
        try:
            work.cloud.delete_lease(lease.id)
        except CloudError as error:
            # One that is over holds nothing any more, and some clouds keep it as a memory.
            if lease.status != "TERMINATED" or error.fault is Fault.PASSING:
                raise

    work.ask("ending the lease", end)


def _made(work: Work, kind: str) -> set[str]:
    return {str(line["id"]) for line in work.journalled("made", kind)}


def strays(cloud: Cloud, bases: Sequence[str]) -> list[str]:
    """What bears a name of Hotbed's and belongs to none of the testbeds with these `bases`: of
    another machine's testbeds, or of one whose record was lost. Kinds with names, for people.

    Raises:
        CloudError: see `Cloud`.
    """
    me = cloud.identity()
    named = [("server", server.name) for server in cloud.servers(PREFIX)]
    named += [
        ("lease", lease.name)
        for lease in cloud.leases()
        if belongs_to(lease, me) and lease.status != "TERMINATED"
    ]
    named += [("floating IP", ip.description) for ip in cloud.floating_ips()]
    named += [("key pair", name) for name in cloud.keypairs()]
    named += [("security group", group.name) for group in cloud.security_groups()]
    return [
        f"{kind} {name}"
        for kind, name in named
        if name.startswith(PREFIX) and not any(belongs(name, base) for base in bases)
    ]
