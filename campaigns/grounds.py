"""Opens the ground that a campaign names."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import cast

from campaigns.services import Ground
from schemas.errors import UserError

FAKE_GROUND = "HOTBED_FAKE_GROUND"
"""Environment variable: a Python file with ``open_ground(testbed: str) -> Ground``, for tests."""


def open_ground(kind: str, testbed: str, site: str | None = None) -> Ground:
    """The ground `kind` on the testbed called `testbed`, which must be up and deployed.

    Args:
        kind: a campaign's `ground`.
        testbed: the testbed's name.
        site: kind of the site; by default the ground's.

    Raises:
        UserError: there is no such testbed, or no such ground yet; says what to do.
    """
    if kind == "fake":
        return _fake(testbed)
    if kind == "sim":
        raise UserError(
            "the ground sim carries no campaign of this paper: use local, chameleon or inventory."
        )
    from campaigns.live_ground import LiveGround

    return LiveGround(site or kind, testbed)


def _fake(testbed: str) -> Ground:
    file = os.environ.get(FAKE_GROUND)
    if not file:
        raise UserError(
            "the ground fake exists only in Hotbed's own tests: use local, chameleon or inventory."
        )
    spec = importlib.util.spec_from_file_location("hotbed_fake_ground", Path(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Ground, module.open_ground(testbed))
