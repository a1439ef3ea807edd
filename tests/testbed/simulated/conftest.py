from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.simulated import SimulatedCeph
from testbed.spec import TestbedSpec, load_spec

SPECS = Path(__file__).resolve().parents[3] / "testbed" / "specs"
Make = Callable[..., SimulatedCeph]


@pytest.fixture(scope="session")
def spec():
    """Return the spec of the eight-node testbed."""
    return load_spec(SPECS / "dlr.yaml")


@pytest.fixture
def make(spec):
    """Provide a function that makes modelled clusters (of the spec `on`), and close them."""
    with ExitStack() as stack:

        def one(*, on: TestbedSpec = spec, objects: int = 0, **options: Any) -> SimulatedCeph:
            ceph = stack.enter_context(SimulatedCeph(on, **options))
            if objects:
                ceph.prefill(objects, 4 * 2**20)
            return ceph

        yield one
