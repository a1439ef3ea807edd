"""What of this site's options may leave with results."""

from __future__ import annotations

NAME_NOBODY = frozenset(
    (
        *("site", "node_type", "flavor", "image", "lease", "floating_ip", "media", "signal"),
        *("host_keys", "patience"),
    )
)
"""Options that name no machine and no person, but for a lease's name."""
