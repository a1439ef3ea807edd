"""Opening of a cloud: credentials, the trusts that Blazar needs, and the sites' addresses."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from requests_mock import Mocker

from schemas.errors import HotbedError, UserError
from testbed.sites.chameleon.cloud import open_cloud
from testbed.sites.contract import SiteError
from tests.errors import raises
from tests.testbed.sites.chi_services import KEYSTONE, REGION, environ, http, let_in

__all__ = ["environ", "http"]

pytestmark = pytest.mark.slow  # python-chi alone takes two seconds to import


@pytest.fixture
def by_application_credential(environ: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OS_USERNAME", "OS_PASSWORD", "OS_PROJECT_NAME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_AUTH_TYPE", "v3applicationcredential")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_ID", "id")
    monkeypatch.setenv("OS_APPLICATION_CREDENTIAL_SECRET", "very-secret")


def keystone_lets_in(http: Mocker, *, restricted: bool, trusts: dict[str, Any]) -> Any:
    """Admit an application credential; `trusts` answers requests for the user's own trusts."""
    credential = {"id": "id", "name": "n", "restricted": restricted}
    let_in(http, methods=["application_credential"], application_credential=credential)
    return http.get(f"{KEYSTONE}/OS-TRUST/trusts", **trusts)


TRUSTS: dict[str, Any] = {"json": {"trusts": [], "links": {"next": None}}}
NOT_ALLOWED = "You are not authorized to perform the requested action: "


def forbidden(words: str) -> dict[str, Any]:
    """Return Keystone's refusal of this action."""
    error = {"code": 403, "message": f"{NOT_ALLOWED}{words}.", "title": "Forbidden"}
    return {"status_code": 403, "json": {"error": error}}


def test_a_restricted_application_credential_is_refused_at_once(
    http: Mocker, by_application_credential: None
) -> None:
    keystone_lets_in(http, restricted=True, trusts=TRUSTS)
    with raises(UserError, "'unrestricted'") as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


@pytest.mark.parametrize("restricted", [False, True], ids=["unrestricted", "restricted"])
@pytest.mark.parametrize(
    "words",
    [
        "Delegated tokens cannot manage trusts",  # keystone 30
        "Using method 'application_credential' is not allowed for managing trusts",  # 27 to 29
    ],
    ids=["delegated", "method"],
)
def test_a_keystone_that_lets_no_application_credential_make_trusts_is_told(
    http: Mocker, by_application_credential: None, words: str, restricted: bool
) -> None:
    """Otherwise Blazar answers a lease request with 500 and no reason, whichever box is ticked."""
    asked = keystone_lets_in(http, restricted=restricted, trusts=forbidden(words))
    with pytest.raises(UserError) as error:
        open_cloud(REGION, None)
    assert words in str(error.value) and "ticked" not in str(error.value)
    assert asked.last_request.qs == {"trustor_user_id": ["user"]}
    assert asked.last_request.headers["X-Auth-Token"] == "a-token"


@pytest.mark.parametrize(
    "trusts",
    [
        TRUSTS,
        # Keystones where nobody may list trusts, or without such a list: that proves nothing.
        forbidden("identity:list_trusts_for_trustor"),
        {"status_code": 404, "json": {"error": {"message": "Not found.", "code": 404}}},
        {"status_code": 403, "text": "<html>a proxy's own page</html>"},
    ],
    ids=["allowed", "policy", "none", "no-json"],
)
def test_an_unrestricted_application_credential_is_taken(
    http: Mocker, by_application_credential: None, trusts: dict[str, Any]
) -> None:
    asked = keystone_lets_in(http, restricted=False, trusts=trusts)
    assert open_cloud(REGION, None).identity().user_id == "user"
    assert asked.call_count == 1


def test_the_trusts_are_asked_for_under_v3(
    http: Mocker, by_application_credential: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS_AUTH_URL may lack the version; python-chi's library then adds it."""
    keystone_lets_in(http, restricted=False, trusts=forbidden("Delegated tokens cannot"))
    monkeypatch.setenv("OS_AUTH_URL", KEYSTONE.removesuffix("v3"))
    with pytest.raises(UserError):
        open_cloud(REGION, None)


def test_the_spec_s_project_is_asked_for_whatever_the_environment_names(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An openrc file also has the project's id, which would take precedence over a name."""
    monkeypatch.setenv("OS_PROJECT_ID", "project-of-chi-2")
    monkeypatch.setenv("OS_PROJECT_NAME", "CHI-2")
    asked = let_in(http)
    open_cloud(REGION, "CHI-1")
    scope = {"project": {"name": "CHI-1", "domain": {"name": "chameleon"}}}
    assert asked.last_request.json()["auth"]["scope"] == scope


def test_the_project_is_in_chameleon_s_domain_where_nothing_says_which(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_PROJECT_DOMAIN_NAME")
    asked = let_in(http)
    open_cloud(REGION, "CHI-1")
    project = asked.last_request.json()["auth"]["scope"]["project"]
    assert project["domain"] == {"name": "chameleon"}


def test_without_a_project_in_the_spec_it_is_the_environment_s(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_PROJECT_ID", "project")
    asked = let_in(http)
    assert open_cloud(REGION, None).identity().project_name == "CHI-1"
    assert asked.last_request.json()["auth"]["scope"] == {"project": {"id": "project"}}


def test_an_application_credential_of_another_project_is_refused(
    http: Mocker, by_application_credential: None
) -> None:
    """Its openrc file names no project: only Keystone knows the project."""
    keystone_lets_in(http, restricted=False, trusts=TRUSTS)
    with pytest.raises(UserError):
        open_cloud(REGION, "CHI-2")
    for project in ("CHI-1", "project"):
        assert open_cloud(REGION, project).identity().project_name == "CHI-1"


def test_a_token_of_another_project_is_refused(http: Mocker, environ: None) -> None:
    let_in(http)  # for any requested project
    with pytest.raises(UserError):
        open_cloud(REGION, "CHI-2")


UNOPENED: dict[str, tuple[dict[str, Any], type[HotbedError], str]] = {
    "refused": ({"status_code": 401}, UserError, "openrc"),
    "silent": ({"exc": requests.exceptions.ConnectTimeout}, SiteError, ""),
}


@pytest.mark.parametrize("case", UNOPENED)
def test_a_session_that_cannot_be_opened_says_what_to_do(
    http: Mocker, by_application_credential: None, case: str
) -> None:
    answer, kind, words = UNOPENED[case]
    let_in(http)
    http.post(f"{KEYSTONE}/auth/tokens", **answer)
    with raises(kind, words) as error:
        open_cloud(REGION, None)
    assert "very-secret" not in str(error.value)


SITES = {"items": [{"name": REGION, "site_class": "baremetal", "web": "http://keystone.test"}]}
SITES_URL = "https://api.chameleoncloud.org/sites.json"


def test_the_sites_address_is_looked_up_where_the_environment_has_none(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_AUTH_URL")
    let_in(http)
    keys = {"web": "w", "location": "l", "user_support_contact": "c"}
    asked = http.get(SITES_URL, json={"items": [keys | SITES["items"][0]]})
    for _ in range(2):
        assert open_cloud(REGION, "CHI-1").identity().user_id == "user"
    assert asked.call_count == 1
    assert asked.last_request.timeout is not None
    with raises(UserError, "'CHI@MOON'"):
        open_cloud("CHI@MOON", "CHI-1")


def test_a_silent_chameleon_is_told(
    http: Mocker, environ: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OS_AUTH_URL")
    http.get(SITES_URL, exc=requests.exceptions.ConnectTimeout)
    with raises(SiteError, "does not say where CHI@UC") as error:
        open_cloud(REGION, "CHI-1")
    assert error.value.retry_after_s is not None
