"""Direct calls of the control plane's APIs, without python-chi and proxy. Tests use them to read
the real state and to change it as an operator would."""

from __future__ import annotations

from typing import Any

import requests

from tests.openstack.config import REGION, SECRET

_TIMEOUT_S = 60.0


class Refused(RuntimeError):
    """Refusal by an API."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Rest:
    """Calls as one user in one project, to endpoints of one `interface` of the catalogue."""

    def __init__(
        self,
        auth_url: str,
        user: str = "admin",
        project: str = "admin",
        *,
        domain: str = "Default",
        interface: str = "internal",
    ) -> None:
        self._http = requests.Session()
        self._http.trust_env = False  # loopback needs no proxy from the environment
        self._auth_url, self._interface = auth_url, interface
        identity = {"name": user, "password": SECRET, "domain": {"name": domain}}
        self._scope = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": identity}},
                "scope": {"project": {"name": project, "domain": {"name": domain}}},
            }
        }
        self.endpoints: dict[str, str] = {}
        self.project_id = self.user_id = ""
        self.log_in()

    def log_in(self) -> None:
        """Get a new token and the catalogue."""
        reply = self._http.post(
            f"{self._auth_url}/auth/tokens", json=self._scope, timeout=_TIMEOUT_S
        )
        if reply.status_code != 201:
            raise Refused(reply.status_code, reply.text)
        token = reply.json()["token"]
        self._http.headers["X-Auth-Token"] = reply.headers["X-Subject-Token"]
        self.project_id, self.user_id = token["project"]["id"], token["user"]["id"]
        self.endpoints = {
            service["type"]: endpoint["url"].rstrip("/")
            for service in token["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == self._interface and endpoint["region_id"] == REGION
        }

    def __call__(
        self, service: str, method: str, path: str, body: object = None, **options: Any
    ) -> Any:
        """Return the decoded answer, or None without one; raise Refused for 4xx and 5xx."""
        url = f"{self.endpoints[service]}{path}"
        reply = self._http.request(method, url, json=body, timeout=_TIMEOUT_S, **options)
        if reply.status_code == 401:
            self.log_in()
            reply = self._http.request(method, url, json=body, timeout=_TIMEOUT_S, **options)
        if reply.status_code >= 400:
            raise Refused(reply.status_code, reply.text)
        return reply.json() if reply.text else None

    def get(self, service: str, path: str) -> Any:
        """Read an object."""
        return self(service, "GET", path)

    def post(self, service: str, path: str, body: object) -> Any:
        """Create an object."""
        return self(service, "POST", path, body)
