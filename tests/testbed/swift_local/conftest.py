"""One Swift for all files here; `test_undeployed_local` runs last and removes it."""

from __future__ import annotations

import pytest

from tests.testbed.swift_beds import bed_of


@pytest.fixture(scope="package")
def bed():
    """Provide ``mos-quick``'s Swift: two microstores on three storage nodes. Tests restore their
    changes."""
    with bed_of("swift-test", "mos-quick.yaml") as found:
        assert all(found.changed[node] > 0 for node in found.spec.node_names())
        yield found
