"""What went wrong on Chameleon, in a sentence that says whether and when to try again."""

from __future__ import annotations

from datetime import UTC, datetime

from schemas.errors import HotbedError, UserError
from testbed.sites.chameleon.cloud import CloudError, Fault
from testbed.sites.contract import SiteError

PASSING_S = 60.0
"""When to try again after a fault that tends to pass."""


class NoCredentials(UserError):
    """Nothing in the environment says who we are."""


def when(seconds_since_epoch: float) -> str:
    """``2026-12-01 08:00 UTC``."""
    return f"{datetime.fromtimestamp(seconds_since_epoch, UTC):%Y-%m-%d %H:%M} UTC"


def explain(error: CloudError, doing: str, site: str) -> HotbedError:
    """The error for people, of a call that failed while `doing` (such as "asking for a lease")."""
    said = " ".join(str(error).split()).rstrip(".")
    where = f"{site}: {doing}"
    if error.fault is Fault.CREDENTIALS:
        return UserError(
            f"{where}: Keystone refuses the credentials ({said}): load a fresh openrc file of "
            f"{site} (OS_* variables), or open the JupyterHub session anew."
        )
    if error.fault is Fault.QUOTA:
        return SiteError(
            f"{where}: the project's quota is used up ({said}): free something of it, or ask "
            "Chameleon's help desk for more"
        )
    if error.fault is Fault.FULL:
        return SiteError(f"{where}: not enough is free ({said})", retry_after_s=PASSING_S)
    if error.fault is Fault.PASSING:
        hint = ""
        if error.status == 500 and "lease" in doing:
            hint = (
                "; if it stays so with an application credential, Keystone may refuse it the trust "
                "that Blazar needs: make one with the box 'unrestricted' ticked, or log in with a "
                "CLI password"
            )
        return SiteError(f"{where}: {said}{hint}", retry_after_s=PASSING_S)
    return SiteError(f"{where}: {said}")
