"""Bytes that an NFS request really sends each way, for the profiles of real testbeds.

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
_MARK, _CALL, _REPLY = 4, 24, 24
_CREDENTIAL = 8 + 84 + 8  # AUTH_UNIX of a kernel's client, and an empty verifier
_HANDLE, _PLACE = 4 + 64, 8 + 4
_STATUS, _ATTRIBUTES, _BEFORE = 4, 4 + 84, 4 + 24

READ_CALL = _MARK + _CALL + _CREDENTIAL + _HANDLE + _PLACE
READ_REPLY = _MARK + _REPLY + _STATUS + _ATTRIBUTES + 12
WRITE_CALL = READ_CALL + 8
WRITE_REPLY = _MARK + _REPLY + _STATUS + _BEFORE + _ATTRIBUTES + 16
"""Bytes of messages without their data (RFC 1813 and 5531, longest handles)."""


def frame_of(mtu: int = ETHERNET_MTU) -> int:
    """Return the bytes that the largest frame takes on a link: 1538 on plain Ethernet."""
    return mtu + ETHERNET


def segment_of(mtu: int = ETHERNET_MTU) -> int:
    """Return the most bytes of a TCP stream in a frame: 1448 on plain Ethernet."""
    return mtu - HEADERS


def network_of(mtu: int = ETHERNET_MTU) -> dict[str, float]:
    """Return a profile's ``network``: an upper bound for every request of NFS version 3 over TCP.

    The headers of full segments scale with size, rounded up to a thousandth. The constants cover
    messages, their last segments and acknowledgements, and suffice for every link of at least 1280
    bytes.
    """
    share = FRAMING / segment_of(mtu)
    return {
        "dataConstant": 430.0,
        "dataFactor": (1000 + math.ceil(1000 * share)) / 1000,
        "nonDataConstant": 400.0,
        "nonDataFactor": math.ceil(500 * share) / 1000,
    }


def sent(size: int, *, read: bool, mtu: int = ETHERNET_MTU) -> tuple[int, int]:
    """Return the bytes of frames (to the server, from it) of a request of `size` bytes.

    Every second full segment, and every message's end, is acknowledged by a frame of its own.
    """
    segment = segment_of(mtu)
    call, reply = (READ_CALL, READ_REPLY + size) if read else (WRITE_CALL + size, WRITE_REPLY)
    there, back = -(-call // segment), -(-reply // segment)
    acknowledged = -(-back // 2), -(-there // 2)
    towards = call + FRAMING * (there + acknowledged[0])
    return towards, reply + FRAMING * (back + acknowledged[1])
