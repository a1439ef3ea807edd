"""Who made a testbed: the record says it before anything is made. Other credentials see other
leases, or none: with them a lease would run on that nobody remembers.
"""

from __future__ import annotations

from dataclasses import asdict

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Identity, Lease
from testbed.sites.chameleon.work import Work

KEY = "owner"


def remember_owner(work: Work) -> None:
    """Write down who asks, unless something was made already: by whom, records of earlier versions
    do not say."""
    if KEY not in work.record.data and not work.record.entries():
        work.record.data[KEY] = asdict(_identity(work))
        work.record.save()


def require_owner(work: Work) -> None:
    """Is this who made the testbed?

    Raises:
        UserError: it is another user, or the same one in another project.
    """
    kept = work.record.data.get(KEY)
    if kept is None:
        return
    owner, here = Identity(**kept), _identity(work)
    if (owner.user_id, owner.project_id) != (here.user_id, here.project_id):
        raise UserError(
            f"testbed {work.record.name!r} on {work.options.site} was made by {_words(owner)}, and "
            f"these credentials are of {_words(here)}, who cannot see its lease: load the openrc "
            "file (OS_* variables) that it was made with, and try again; nothing was changed."
        )


def belongs_to(lease: Lease, who: Identity) -> bool:
    """Is it this user's lease, in this project?"""
    return lease.user_id == who.user_id and lease.project_id == who.project_id


def _identity(work: Work) -> Identity:
    return work.ask("asking who we are", work.cloud.identity)


def _words(who: Identity) -> str:
    user, project = who.user_name or who.user_id, who.project_name or who.project_id
    return f"user {user} in project {project}"
