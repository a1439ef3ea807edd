"""Every figure and claim of the MOS paper, in parts. Each part uses the runs of one ground; runs of
different grounds are never pooled. Another part is one line in `PARTS`."""

from __future__ import annotations

from analysis.core.papers import Part
from analysis.papers.mos.gateway import GATEWAY
from analysis.papers.mos.local.catalogue import LOCAL
from analysis.papers.mos.scale import SCALE

BANNER = (
    "<b>Simulated</b> where a figure says so: COSPerf computes a pool of machines from measured "
    "profiles (docs/mos.md), as the paper's simulator does. Figures 1 to 12 are measured on real "
    "Swift, at a hundredth of the paper's size; those of the object gateway on real Ceph "
    "(docs/mos-experiments.md)."
)

PARTS: tuple[Part, ...] = (LOCAL, SCALE, GATEWAY)
