"""Order of a Swift proxy's steps for a request."""

from __future__ import annotations

from testbed.stores.swift.confs import Proxy, proxy_conf


def test_listings_by_s3_are_not_turned_into_text() -> None:
    proxy = Proxy("small", "10.0.0.1", 8080, 1, ("10.0.0.2:11211",), ("a",), s3=True)
    text = proxy_conf(proxy, {"keys": {"a": "key-a"}})
    [line] = [line for line in text.splitlines() if line.startswith("pipeline = ")]
    order = line.removeprefix("pipeline = ").split()
    assert order.index("listing_formats") < order.index("s3api") < order.index("tempauth")
    assert all(f"[filter:{name}]" in text for name in order[:-1])
