"""A device's profile from the model of the local site's queue disk (docs/queue-disk.md).

The proxy charges requests by a profile (section 4.2 of PriorityMeister). A modelled disk needs no
measurement: this profile is the model's own positioning, in the form of the table by distance that
`hotbed pm profile --kind by-distance` would measure.
"""

from __future__ import annotations

from typing import Any

from testbed.spec import DiskSpec
from testbed.stores.nfs.wire import ETHERNET_MTU, network_of

_POINTS = 16
_NEAR, _FAR = 0.4, 1.125
"""positioning(distance) = mean * (_NEAR + _FAR * sqrt(distance / size))"""


def profile_of(disk: DiskSpec, mtu: int = ETHERNET_MTU) -> dict[str, Any]:
    """Return the profile of a queue disk: type ``storageTable``, times in seconds, sizes in bytes.

    The estimator interpolates linearly between the table's distances, at most 1.8 % of the mean
    positioning below the model. A request costs no positioning only where the previous one ended:
    the disk has one head and no cache (``history`` 1). `mtu` is that of the links that requests
    use.
    """
    steps = [disk.size * (step / _POINTS) ** 2 for step in range(_POINTS + 1)]
    distances = [-step for step in steps[:0:-1]] + steps
    base = [
        disk.positioning * (_NEAR + _FAR * (abs(distance) / disk.size) ** 0.5)
        for distance in distances
    ]
    offsets = [0.0, float(disk.size)]
    table = {
        "offsets": offsets,
        "distances": distances,
        "base": [base, base],
        "bandwidth": [[disk.bandwidth] * len(distances)] * 2,
    }
    return {
        "type": "storageTable",
        "history": 1,
        "read": table,
        "write": table,
        "network": network_of(mtu),
    }
