"""In-memory cluster for the tests of this folder."""

from __future__ import annotations

import pytest

from testbed.stores.ceph import CephStore, Connection
from tests.testbed.stores.ceph.fake_rados import FakeRados


@pytest.fixture
def raw():
    return FakeRados()


@pytest.fixture
def store(raw):
    return CephStore(Connection(raw, timeout_s=2.0), pools=["bench"])
