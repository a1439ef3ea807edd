"""May an application credential make trusts? Blazar makes one, with the user's own token, for every
lease; where Keystone refuses it, Blazar answers 500 without a reason.

Keystone has had two rules. Until the corrections of CVE-2026-43000 (in 27.0.2, 28.0.2, 29.0.2)
unrestricted credentials might, restricted ones might not. Since then none may, unless the site sets
``[security_compliance] allow_insecure_application_credential_trust_escalation``, which Chameleon's
installer can (ChameleonCloud/chi-in-a-box, pull request 407; no site of it was asked).
"""

from __future__ import annotations

from typing import Any

from schemas.errors import UserError
from testbed.sites.chameleon.chi_errors import translated

_RULE = "identity:"
"""How Keystone begins the name of a rule of its policy; what it says of credentials has none."""


def access_of(session: Any) -> Any:
    """What Keystone said of the session's token: a new one where it has none that is valid.

    Raises:
        CloudError: Keystone gives no token.
    """
    inner = getattr(session, "session", session)  # of an adapter
    with translated("asking Keystone for a token"):
        return inner.auth.get_access(inner)


def require_trusts(session: Any) -> None:
    """Refuse an application credential with which no lease can be made.

    Args:
        session: keystoneauth's session or adapter, opened with an application credential.

    Raises:
        UserError: it is restricted, or Keystone lets none make trusts.
        CloudError: Keystone gives no token.
    """
    inner = getattr(session, "session", session)  # of an adapter
    access = access_of(session)
    with translated("asking Keystone for its trusts"):
        refusal = _refusal(inner, access.user_id)
    if refusal:
        raise UserError(
            "this site's Keystone lets no application credential make trusts, one of which Blazar "
            f"needs for every lease ({refusal.rstrip('.')}): load the openrc file "
            "for a CLI password, or work in Chameleon's JupyterHub."
        )
    told = access._data["token"].get("application_credential") or {}
    if told.get("restricted"):
        raise UserError(
            "the application credential is a restricted one, with which Blazar cannot make leases: "
            "make another with the box 'unrestricted' ticked, and load its openrc file."
        )


def _refusal(session: Any, user: str) -> str | None:
    """Why Keystone lets no credential of this kind touch trusts; None when it does not say so.

    Asking for the user's own trusts changes nothing, and meets the same check as making one.
    """
    base = session.auth.auth_url.rstrip("/")
    base = base if base.endswith("/v3") else f"{base}/v3"
    answer = session.get(
        f"{base}/OS-TRUST/trusts", params={"trustor_user_id": user}, raise_exc=False
    )
    if answer.status_code != 403:
        return None
    try:
        said = str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None
    return None if _RULE in said else said
