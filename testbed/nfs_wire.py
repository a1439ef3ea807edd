"""How many bytes an NFS request really sends each way, for the profiles of real testbeds.

PriorityMeister's network estimator goes by a request's kind and size (section 4.2). The usual
numbers (a profile without ``network``) count about 200 bytes beside the data, which is less than
a small request takes with TCP's acknowledgements. A token bucket at the mean rate of too small
estimates holds a workload back that keeps to its trace, further and further; so the profiles of
testbeds, where buckets count packets, have costs that are never below what is sent.
"""

from __future__ import annotations

SEGMENT = 1448
"""Bytes of a stream in an Ethernet frame: 1500 less IP's and TCP's headers, with time stamps."""
FRAMING = 90
"""Headers of a frame: Ethernet, its gap, preamble and check sequence (38), IP (20), TCP (32)."""
_MARK, _CALL, _REPLY = 4, 24, 24
_CREDENTIAL = 8 + 84 + 8  # AUTH_UNIX of a kernel's client, and an empty verifier
_HANDLE, _PLACE = 4 + 64, 8 + 4
_STATUS, _ATTRIBUTES, _BEFORE = 4, 4 + 84, 4 + 24

READ_CALL = _MARK + _CALL + _CREDENTIAL + _HANDLE + _PLACE
READ_REPLY = _MARK + _REPLY + _STATUS + _ATTRIBUTES + 12
WRITE_CALL = READ_CALL + 8
WRITE_REPLY = _MARK + _REPLY + _STATUS + _BEFORE + _ATTRIBUTES + 16
"""Bytes of messages beside their data (RFC 1813 and 5531, the longest handles)."""

NETWORK = {
    "dataConstant": 430.0,
    "dataFactor": 1.063,
    "nonDataConstant": 400.0,
    "nonDataFactor": 0.032,
}
"""A profile's ``network``: no request of NFS version 3 over TCP sends more."""


def sent(size: int, *, read: bool) -> tuple[int, int]:
    """Bytes of frames (towards the server, from it) of a request of `size` bytes.

    Every second full segment is acknowledged by a frame of its own, and so is a message's end.
    """
    call, reply = (READ_CALL, READ_REPLY + size) if read else (WRITE_CALL + size, WRITE_REPLY)
    there, back = -(-call // SEGMENT), -(-reply // SEGMENT)
    acknowledged = -(-back // 2), -(-there // 2)
    towards = call + FRAMING * (there + acknowledged[0])
    return towards, reply + FRAMING * (back + acknowledged[1])
