"""Who we are to Chameleon: the OS_* variables of an openrc file, or the JupyterHub's token.

They are read from the environment by python-chi, and never written anywhere: not into records,
journals, messages or command lines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from schemas.errors import UserError
from testbed.sites.chameleon.cloud import Identity
from testbed.sites.chameleon.errors import NoCredentials

APPLICATION = "v3applicationcredential"
_NEEDS = {
    APPLICATION: (
        ("OS_APPLICATION_CREDENTIAL_ID", "OS_APPLICATION_CREDENTIAL_NAME"),
        ("OS_APPLICATION_CREDENTIAL_SECRET",),
    ),
    "v3password": (("OS_USERNAME", "OS_USER_ID"), ("OS_PASSWORD",)),
    "v3token": (("OS_TOKEN",),),
    "v3oidcaccesstoken": (("OS_ACCESS_TOKEN", "JUPYTERHUB_API_TOKEN"),),
}
"""For each way to log in, what must be set: one of each row."""
_HOW = (
    "download the openrc file of an application credential of the site (Identity, Application "
    "Credentials, with 'unrestricted' ticked) and `source` it, or work in Chameleon's JupyterHub"
)


@dataclass(frozen=True)
class Plan:
    """How to open a session. `look_up_site`: ask Chameleon for the site's address, which the
    environment does not say; `scoped`: the credentials are for one project."""

    look_up_site: bool
    scoped: bool


def plan(site: str, project: str | None, environ: Mapping[str, str] | None = None) -> Plan:
    """Can these credentials work on `site`?

    Raises:
        NoCredentials: nothing is set.
        UserError: something is missing, is for another site, or for another project.
    """
    env = os.environ if environ is None else environ
    method = env.get("OS_AUTH_TYPE") or env.get("OS_AUTH_METHOD") or _guess(env)
    if method is None:
        raise NoCredentials(_nothing(env))
    if not method.startswith("v3"):
        raise UserError(
            f"OS_AUTH_TYPE is {method}, which python-chi does not know; it knows "
            f"{', '.join(_NEEDS)}: {_HOW}."
        )
    for row in _NEEDS.get(method, ()):
        if not any(env.get(name) for name in row):
            raise UserError(f"OS_AUTH_TYPE is {method}, and {row[0]} is not set: {_HOW}.")
    region = env.get("OS_REGION_NAME")
    scoped = method == APPLICATION
    if scoped and region and region != site:
        raise UserError(
            f"the application credential is for {region} (OS_REGION_NAME), and the spec says "
            f"{site}: {_HOW}."
        )
    named = env.get("OS_PROJECT_NAME")
    if scoped and project and named and named != project:
        raise UserError(
            f"the application credential is for project {named} (OS_PROJECT_NAME), and the spec "
            f"says {project}: take one of {project}'s, or leave site.options.project out."
        )
    if not scoped and not (project or named or env.get("OS_PROJECT_ID")):
        raise UserError(
            "no project is chosen: give site.options.project, such as CHI-123456, or set "
            "OS_PROJECT_NAME."
        )
    return Plan(look_up_site=not env.get("OS_AUTH_URL") or region != site, scoped=scoped)


def require_project(project: str, who: Identity) -> None:
    """Is it the spec's project that will be charged?

    Raises:
        UserError: Keystone's token is for another one.
    """
    if project not in (who.project_name, who.project_id):
        raise UserError(
            f"these credentials are for project {who.project_name or who.project_id}, and the spec "
            f"says {project}: take credentials of {project}'s, or leave site.options.project out."
        )


def _guess(env: Mapping[str, str]) -> str | None:
    """The way to log in of variables that do not name it."""
    if env.get("OS_APPLICATION_CREDENTIAL_SECRET"):
        raise UserError(
            f"OS_APPLICATION_CREDENTIAL_SECRET is set and OS_AUTH_TYPE is not: set it to "
            f"{APPLICATION}, as the openrc file does."
        )
    if env.get("OS_PASSWORD"):
        raise UserError(
            "OS_PASSWORD is set and OS_AUTH_TYPE is not: set it as the openrc file for a CLI "
            "password of the site does."
        )
    return None


def _nothing(env: Mapping[str, str]) -> str:
    if env.get("OS_CLOUD"):
        return (
            "OS_CLOUD names an entry of clouds.yaml, which python-chi does not read: set the OS_* "
            f"variables themselves ({_HOW})."
        )
    return f"there are no credentials for Chameleon: no OS_* variables are set; {_HOW}."


def missing_libraries(error: ImportError) -> UserError:
    """The sentence for a library that is not installed."""
    return UserError(
        f"the site chameleon needs python-chi, python-blazarclient and openstacksdk, and "
        f"{error.name or error} is missing: `make setup`, or pip install 'python-chi>=1.2.10,<1.3' "
        "python-blazarclient python-zunclient openstacksdk."
    )
