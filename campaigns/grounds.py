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


def open_ground(
    kind: str,
    testbed: str,
    site: str | None = None,
    spec: Path | None = None,
    model: Path | None = None,
) -> Ground:
    """The ground `kind` on the testbed called `testbed`, which must be up and deployed; for `sim`
    nothing has to be.

    Args:
        kind: a campaign's `ground`.
        testbed: the testbed's name.
        site: kind of the site; by default the ground's.
        spec: the testbed's file, which is all that `sim` is made of; without it `testbed` names one
            (see `campaigns.sim_ground.open_sim`).
        model: constants of `sim`'s model, where not the default.

    Raises:
        UserError: there is no such testbed; says what to do.
    """
    if model is not None and kind != "sim":
        raise UserError(f"a model belongs to the ground sim, not to {kind}: leave out --model.")
    if kind == "fake":
        return _fake(testbed)
    if kind == "sim":
        from campaigns.sim_ground import open_sim

        return open_sim(testbed, spec, model)
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
