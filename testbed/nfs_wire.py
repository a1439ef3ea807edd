"""How many bytes an NFS request really sends each way, for the profiles of real testbeds.

PriorityMeister's network estimator goes by a request's kind and size (section 4.2). The usual
numbers (a profile without ``network``) count about 200 bytes beside the data, which is less than
a small request takes with TCP's acknowledgements. A token bucket at the mean rate of too small
estimates holds a workload back that keeps to its trace, further and further; so the profiles of
testbeds, where buckets count packets, have costs that are never below what is sent.
"""

from __future__ import annotations

import math

ETHERNET_MTU = 1500
"""Largest IP packet of an Ethernet link, bytes, where nobody says another."""
ETHERNET = 38
"""What a frame keeps a link busy beside its IP packet: header, check sequence, preamble, gap."""
HEADERS = 52
"""IP's (20) and TCP's with time stamps (32)."""
FRAMING = ETHERNET + HEADERS
"""Bytes of a frame that are not the stream's."""
_MARK, _CALL, _REPLY = 4, 24, 24
_CREDENTIAL = 8 + 84 + 8  # AUTH_UNIX of a kernel's client, and an empty verifier
_HANDLE, _PLACE = 4 + 64, 8 + 4
_STATUS, _ATTRIBUTES, _BEFORE = 4, 4 + 84, 4 + 24

READ_CALL = _MARK + _CALL + _CREDENTIAL + _HANDLE + _PLACE
READ_REPLY = _MARK + _REPLY + _STATUS + _ATTRIBUTES + 12
WRITE_CALL = READ_CALL + 8
WRITE_REPLY = _MARK + _REPLY + _STATUS + _BEFORE + _ATTRIBUTES + 16
"""Bytes of messages beside their data (RFC 1813 and 5531, the longest handles)."""


def frame_of(mtu: int = ETHERNET_MTU) -> int:
    """Bytes that the largest frame of a link keeps it busy: 1538 of plain Ethernet."""
    return mtu + ETHERNET


def segment_of(mtu: int = ETHERNET_MTU) -> int:
    """Most bytes of a TCP stream in a frame: 1448 of plain Ethernet."""
    return mtu - HEADERS


def network_of(mtu: int = ETHERNET_MTU) -> dict[str, float]:
    """A profile's ``network``: no request of NFS version 3 over TCP sends more.

    The headers of full segments go by size, upwards to a thousandth; messages, their last segments
    and acknowledgements are in the constants, which are enough for every link of 1280 bytes or
    more.
    """
    share = FRAMING / segment_of(mtu)
    return {
        "dataConstant": 430.0,
        "dataFactor": (1000 + math.ceil(1000 * share)) / 1000,
        "nonDataConstant": 400.0,
        "nonDataFactor": math.ceil(500 * share) / 1000,
    }


def sent(size: int, *, read: bool, mtu: int = ETHERNET_MTU) -> tuple[int, int]:
    """Bytes of frames (towards the server, from it) of a request of `size` bytes.

    Every second full segment is acknowledged by a frame of its own, and so is a message's end.
    """
    segment = segment_of(mtu)
    call, reply = (READ_CALL, READ_REPLY + size) if read else (WRITE_CALL + size, WRITE_REPLY)
    there, back = -(-call // segment), -(-reply // segment)
    acknowledged = -(-back // 2), -(-there // 2)
    towards = call + FRAMING * (there + acknowledged[0])
    return towards, reply + FRAMING * (back + acknowledged[1])
