"""What Blazar's client and openstacksdk give back, in the site's own types, and the other way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from testbed.sites.chameleon.cloud import (
    FLAVOR,
    HOST,
    FloatingIp,
    Host,
    Lease,
    Reservation,
    Rule,
    Server,
    Wanted,
)

_MINUTES = "%Y-%m-%d %H:%M"


def seconds_of(text: str) -> float:
    """Of Blazar's times, ``2026-12-01T08:00:00.000000``, which are UTC and do not say so."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def text_of(seconds: float) -> str:
    """A time as Blazar takes it: whole minutes, UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_MINUTES)


_HOST_OWN = frozenset({"id", "reservable", "trust_id", "created_at", "updated_at"})


def host_of(told: Mapping[str, Any]) -> Host:
    """A host of Blazar's."""
    properties = {
        str(name): str(value)
        for name, value in told.items()
        if name not in _HOST_OWN and value is not None
    }
    name = str(told.get("uid") or told.get("hypervisor_hostname") or told["id"])
    return Host(str(told["id"]), name, bool(told.get("reservable", True)), properties)


def lease_of(told: Mapping[str, Any]) -> Lease:
    """A lease of Blazar's."""
    return Lease(
        id=told["id"],
        name=told["name"],
        status=str(told["status"]).upper(),
        start_s=seconds_of(told["start_date"]),
        end_s=seconds_of(told["end_date"]),
        user_id=told["user_id"],
        project_id=told["project_id"],
        reservations=tuple(reservation_of(each) for each in told.get("reservations") or ()),
        reason=_reason(told),
        made_s=seconds_of(told["created_at"]) if told.get("created_at") else None,
    )


def _reason(told: Mapping[str, Any]) -> str:
    """Blazar's words for a lease in ERROR; of most it has only the events that failed."""
    words = [str(told[key]) for key in ("status_reason", "error_message") if told.get(key)]
    words += [
        f"the event {event.get('event_type')} at {event.get('time')} ended in ERROR"
        for event in told.get("events") or ()
        if event.get("status") == "ERROR"
    ]
    words += [
        f"its reservation {each.get('id')} of {each.get('resource_type')} is in ERROR"
        for each in told.get("reservations") or ()
        if str(each.get("status")).upper() == "ERROR"
    ]
    return "; ".join(words)


def reservation_of(told: Mapping[str, Any]) -> Reservation:
    """A reservation of a lease."""
    kind = str(told.get("resource_type", ""))
    properties = str(told.get("resource_properties") or "")
    if kind == FLAVOR:
        # `flavor_id` is the reservation's own flavor; what was asked for is in the properties.
        wanted = Wanted(kind, int(told.get("amount") or 0), "", _source_flavor(properties))
    else:
        wanted = Wanted(kind, int(told.get("min") or told.get("amount") or 0), properties)
    return Reservation(told["id"], wanted, str(told.get("status", "")))


def _source_flavor(properties: str) -> str:
    try:
        return str(json.loads(properties).get("id") or "")
    except (ValueError, AttributeError):
        return ""


def body_of(wanted: Wanted) -> dict[str, Any]:
    """What Blazar is asked for."""
    if wanted.kind == HOST:
        return {
            "resource_type": HOST,
            "resource_properties": wanted.properties,
            "hypervisor_properties": "",
            "min": wanted.amount,
            "max": wanted.amount,
        }
    return {
        "resource_type": FLAVOR,
        "flavor_id": wanted.flavor_id,
        "amount": wanted.amount,
        "affinity": None,
    }


def rules_of(told: Any, group_id: str) -> Iterator[Rule]:
    """The rule of the group, if it is one that `Rule` can say."""
    if told.direction != "ingress" or told.ether_type != "IPv4":
        return
    if told.remote_group_id == group_id and told.protocol is None:
        yield Rule(None)
    everywhere = told.remote_group_id is None and told.remote_ip_prefix in (None, "0.0.0.0/0")
    if everywhere and told.protocol == "tcp" and told.port_range_min == told.port_range_max:
        yield Rule(told.port_range_min)


def server_of(told: Any) -> Server:
    """A server of Nova's."""
    addresses = [
        str(each["addr"])
        for network in (told.addresses or {}).values()
        for each in network
        if each.get("version", 4) == 4 and each.get("OS-EXT-IPS:type", "fixed") == "fixed"
    ]
    # Nova calls it active until it is gone.
    leaving = getattr(told, "task_state", None) == "deleting"
    fault = ""
    if told.status == "ERROR":
        fault = str((getattr(told, "fault", None) or {}).get("message", ""))
    return Server(
        id=told.id,
        name=told.name,
        status="DELETING" if leaving else told.status,
        addresses=tuple(addresses),
        fault=fault,
        host=told.hypervisor_hostname or "",
    )


def floating_ip_of(told: Any) -> FloatingIp:
    """A floating IP of Neutron's."""
    return FloatingIp(told.id, told.floating_ip_address, told.description or "", told.port_id)
