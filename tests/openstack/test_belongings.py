"""What tests do to leases as their owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tests.openstack import belongings
from tests.openstack.rest import Rest


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
