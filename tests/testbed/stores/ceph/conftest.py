"""Import path for this folder's helpers (`fake_rados`), and a cluster for its tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fake_rados import FakeRados

from testbed.stores.ceph import CephStore, Connection


@pytest.fixture
def raw():
    return FakeRados()


@pytest.fixture
def store(raw):
    return CephStore(Connection(raw, timeout_s=2.0), pools=["bench"])
