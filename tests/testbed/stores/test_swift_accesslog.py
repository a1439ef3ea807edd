"""Tenant statistics from the access log of a Swift proxy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.stores.swift import accesslog


def line(method: str = "GET", status: int = 200, seconds: str = "0.0500", **other: str) -> bytes:
    words = {"account": "AUTH_a", "got": "-", "gave": "4097", "source": "-", "object": "o"} | other
    text = (
        f"<134>hbswift: hbswift {method} {words['account']} {status} {words['got']} "
        f"{words['gave']} {seconds} 0.01 {words['source']} {words['object']}"
    )
    return text.encode() + b"\0"


def parsed(datagram: bytes) -> accesslog.AccessLine:
    found = accesslog.parse(datagram)
    assert found is not None
    return found


def test_a_line_as_swift_sends_it() -> None:
    """Recorded line: the formatter adds the transaction."""
    found = accesslog.parse(
        b"<134>hbswift: hbswift GET AUTH_small 401 - 131 0.1089 0.10876107215881348 - o "
        b"(txn: tx9088a61eef1145498a31f-006b027dfc)\x00"
    )
    assert found is not None
    assert (found.tenant, found.bytes, found.failed) == ("small", 131, False)
    own = (
        b"<134>hbswift: hbswift HEAD AUTH_small 503 - - 0.0176 - GET_ACCOUNT_INFO - "
        b"(txn: tx9088a61eef1145498a31f-006b027dfc)\x00"
    )
    assert accesslog.parse(own) is None


def test_lines_of_the_access_log_become_sums() -> None:
    sums = accesslog.Sums()
    for datagram in (
        line(),
        line("PUT", 201, "0.2000", got="1000", gave="-"),
        line("DELETE", 404, gave="70"),
        line(status=503),
        line(status=499),
    ):
        found = accesslog.parse(datagram)
        assert found is not None
        assert found.tenant == "a"
        sums.add(found)
    assert (sums.requests, sums.failed, sums.writes, sums.bytes) == (3, 2, 2, 5167)
    assert sums.sizes == {13: 1, 10: 1}
    assert sums.seconds == pytest.approx(0.3)


def test_invented_accounts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who reaches a proxy can name accounts. The daemon's memory and the real tenants' sums
    stay correct."""
    monkeypatch.setattr(accesslog, "MOST_TENANTS", 3)
    listener = accesslog.Listener(port=0)
    try:
        for n in range(5):
            for status in (401, 403, 499):
                listener.add(parsed(line(status=status, account=f"AUTH_invented{n}")))
        listener.add(parsed(line(account="AUTH_a")))
        listener.add(parsed(line(status=401, account="AUTH_a")))
        listener.add(parsed(line(status=503, account="AUTH_b")))
        assert {name: sums.requests for name, sums in listener.tenants.items()} == {"a": 2, "b": 0}
        for n in range(5):
            listener.add(parsed(line(account=f"AUTH_made{n}")))
        assert len(listener.tenants) == 3
    finally:
        listener.close()


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"<134>swift-proxy: ERROR with Object server",
        line(account="-"),
        line(source="TA"),
        line(seconds="soon"),
        line()[:-12],
    ],
)
def test_other_lines_are_left_alone(datagram: bytes) -> None:
    assert accesslog.parse(datagram) is None


@given(st.floats(1e-5, 1e3))
def test_a_bucket_holds_its_latency(seconds: float) -> None:
    edge = accesslog.upper_edge(accesslog.bucket_of(seconds))
    assert seconds <= edge * (1 + 1e-9)
    assert edge <= max(seconds, accesslog.LOWEST_S) * 1.13


def test_a_percentile_needs_requests_beyond_it() -> None:
    assert accesslog.percentile({20: 199}, 0.95) is None
    assert accesslog.percentile({20: 190, 40: 10}, 0.95) == pytest.approx(1e-3)
    assert accesslog.percentile({20: 100, 40: 100}, 0.95) == pytest.approx(1e-2)
