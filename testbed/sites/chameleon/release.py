"""Taking away everything that was made for a testbed, and nothing else.

What is ours is known twice: every name that we give begins with the testbed's base, which no other
testbed has, and the journal has the ids. So nothing is lost by a crash between a call and its
answer. A lease that was there before us stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from testbed.sites.chameleon.cloud import Cloud, CloudError, Fault, Lease, Server
from testbed.sites.chameleon.errors import PASSING_S
from testbed.sites.chameleon.lease import is_ours, lease_name
from testbed.sites.chameleon.servers import AT_ONCE
from testbed.sites.chameleon.work import POLL_S, Work, belongs
from testbed.sites.contract import SiteError

PREFIX = "hotbed-"
GONE_S = 600.0
"""How long servers may take to be gone."""


def remove_all(work: Work) -> None:
    """See the module. Safe to repeat.

    Raises:
        SiteError: something could not be removed; the next call goes on.
    """
    base, cloud = work.base, work.cloud
    work.progress("removing floating IPs", 0.05)
    ips = work.ask("looking for floating IPs", cloud.floating_ips)
    mine = {ip.id for ip in ips if belongs(ip.description, base)}
    mine |= {ip.id for ip in ips if ip.id in _made(work, "floating ip")}
    _each(work, "removing floating IPs", mine, cloud.delete_floating_ip)
    _remove_servers(work)
    work.progress("removing the lease", 0.8)
    for lease in leases_to_end(work):
        _end(work, lease)
    work.progress("removing keys and rules", 0.9)
    groups = work.ask("looking for security groups", cloud.security_groups)
    ours = {group.id for group in groups if group.name == base}
    _each(work, "removing the security group", ours, cloud.delete_security_group)
    if base in work.ask("looking for key pairs", cloud.keypairs):
        _each(work, "removing the key pair", [base], cloud.delete_keypair)


def _remove_servers(work: Work) -> None:
    """All servers of the testbed, also those that never were placed, until they are gone."""
    there = _servers(work)
    total = len(there) or 1
    _each(work, "removing servers", [s.id for s in there], work.cloud.delete_server)
    end = work.clock.now() + GONE_S
    while there := _servers(work):
        if work.clock.now() > end:
            raise SiteError(
                f"{work.options.site}: {len(there)} servers are still there, such as "
                f"{there[0].name} ({there[0].status}): `hotbed down` again goes on",
                retry_after_s=PASSING_S,
            )
        work.progress(f"{len(there)} servers still there", 0.1 + 0.65 * (1 - len(there) / total))
        work.clock.sleep(POLL_S)


def _servers(work: Work) -> list[Server]:
    found = work.ask("looking for servers", lambda: work.cloud.servers(work.base))
    gone = ("DELETED", "SOFT_DELETED")
    return [s for s in found if belongs(s.name, work.base) and s.status not in gone]


def leases_to_end(work: Work) -> list[Lease]:
    """Leases that we made and that are still listed."""
    identity = work.ask("asking who we are", work.cloud.identity)
    made = _made(work, "lease")
    return [
        lease
        for lease in work.ask("looking for the lease", work.cloud.leases)
        if lease.user_id == identity.user_id
        and (lease.id in made or (lease.name == lease_name(work) and is_ours(work, lease.id)))
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


def _each(work: Work, doing: str, ids: Iterable[str], remove: Callable[[str], None]) -> None:
    """Remove all at once."""
    doomed = sorted(ids)
    if not doomed:
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(doomed))) as pool:
        futures = [pool.submit(work.ask, doing, partial(remove, each)) for each in doomed]
    for future in futures:
        future.result()


def strays(cloud: Cloud, bases: Sequence[str]) -> list[str]:
    """What bears a name of Hotbed's and belongs to none of the testbeds with these `bases`: of
    another machine's testbeds, or of one whose record was lost. Kinds with names, for people.

    Raises:
        CloudError: see `Cloud`.
    """
    user = cloud.identity().user_id
    named = [("server", server.name) for server in cloud.servers(PREFIX)]
    named += [
        ("lease", lease.name)
        for lease in cloud.leases()
        if lease.user_id == user and lease.status != "TERMINATED"
    ]
    named += [("floating IP", ip.description) for ip in cloud.floating_ips()]
    named += [("key pair", name) for name in cloud.keypairs()]
    return [
        f"{kind} {name}"
        for kind, name in named
        if name.startswith(PREFIX) and not any(belongs(name, base) for base in bases)
    ]
