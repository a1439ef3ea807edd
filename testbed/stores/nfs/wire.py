"""Bytes of an NFS request on a real link, for the profiles of real testbeds.

PriorityMeister's network estimator uses a request's kind and size (section 4.2). The usual
numbers (a profile without ``network``) count about 200 bytes in addition to the data. A small
request takes more, with TCP's acknowledgements. A token bucket at the mean rate of too small
estimates delays a workload that keeps to its trace, more and more. Testbeds' buckets count
packets, so the costs in testbeds' profiles are never below the bytes sent.
"""

from __future__ import annotations

import math

ETHERNET_MTU = 1500
"""Largest IP packet of an Ethernet link by default, in bytes."""
ETHERNET = 38
"""Bytes that a frame adds to its IP packet on a link: header, check sequence, preamble, gap."""
HEADERS = 52
"""Bytes of the headers of IP (20) and of TCP with time stamps (32)."""
FRAMING = ETHERNET + HEADERS
"""Bytes of a frame that are not part of the stream."""


def frame_of(mtu: int = ETHERNET_MTU) -> int:
    """Return the bytes that the largest frame takes on a link: 1538 on plain Ethernet."""
    return mtu + ETHERNET


def network_of(mtu: int = ETHERNET_MTU) -> dict[str, float]:
    """Return a profile's ``network``: an upper bound for every request of NFS version 3 over TCP.

    The headers of full segments scale with size, rounded up to a thousandth. The constants cover
    messages, their last segments and acknowledgements, and suffice for every link of at least 1280
    bytes.
    """
    share = FRAMING / (mtu - HEADERS)  # a frame carries so many bytes of a TCP stream
    return {
        "dataConstant": 430.0,
        "dataFactor": (1000 + math.ceil(1000 * share)) / 1000,
        "nonDataConstant": 400.0,
        "nonDataFactor": math.ceil(500 * share) / 1000,
    }
