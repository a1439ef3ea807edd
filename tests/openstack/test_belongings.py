"""What tests do to leases as their owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tests.openstack import belongings
from tests.openstack.rest import Refused, Rest


class Owner:
    """Blazar with one lease; notes the dates that it is given."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def get(self, service: str, path: str) -> Any:
        assert (service, path) == ("reservation", "/leases")
        return {"leases": [{"id": "one"}]}

    def __call__(self, service: str, method: str, path: str, body: Any) -> None:
        assert (service, method, path) == ("reservation", "PUT", "/leases/one")
        self.ends.append(body["end_date"])


def test_a_lease_ends_at_once_or_at_a_full_minute() -> None:
    owner = Owner()
    assert belongings.end_lease(cast(Rest, owner)) == "one"
    before = datetime.now(UTC)
    belongings.end_lease(cast(Rest, owner), within_s=105.0)
    after = datetime.now(UTC)
    now, later = owner.ends
    assert now == "now"
    end = datetime.strptime(later, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    assert before + timedelta(seconds=45) <= end <= after + timedelta(seconds=105)


class Starting:
    """A project whose only lease Blazar starts just now: it can be deleted a moment later."""

    project_id = "theirs"

    def __init__(self) -> None:
        self.leases = [{"id": "one", "name": "one"}]
        self.refusals = 2

    def get(self, service: str, path: str) -> Any:
        if service == "reservation":
            return {"leases": list(self.leases)}
        empty: list[Any] = []
        return {"servers": empty, "keypairs": empty, "floatingips": empty, "security_groups": empty}

    def __call__(self, service: str, method: str, path: str, body: Any = None) -> None:
        assert (service, method, path) == ("reservation", "DELETE", "/leases/one")
        if self.refusals:
            self.refusals -= 1
            raise Refused(500, '{"error_code": 500, "error_message": "Invalid lease status."}')
        self.leases.clear()


def test_a_lease_that_is_being_started_is_deleted_when_it_has_started() -> None:
    theirs = Starting()
    belongings.wipe(cast(Rest, theirs))
    assert theirs.leases == []
