"""Until when tests may begin: where a machine is too slow for all, the last are left out, and told.

`HOTBED_TESTS_UNTIL` is a time in seconds since 1970; without it nothing is left out. Tests without
a marker (`make test-unit`) always run.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

UNTIL = "HOTBED_TESTS_UNTIL"
LONG = ("slow", "local", "openstack")
REASON = "left out, for the time for tests was over"


def keep_to_it(item: pytest.Item) -> None:
    """Skip a long test whose time to begin is over; before anything is made for it."""
    until = os.environ.get(UNTIL)
    if until and time.time() > float(until) and any(map(item.get_closest_marker, LONG)):
        pytest.skip(f"{REASON} at {time.strftime('%H:%M', time.localtime(float(until)))}")


def left_out(skipped: Sequence[pytest.TestReport]) -> int:
    """How many of these were left out for want of time."""
    return sum(REASON in str(report.longrepr) for report in skipped)
