"""Claims of the PriorityMeister paper (abstract, section 1 and section 6), and claims beyond it;
declared before anything ran.

The paper's SLOs are dashed lines in its figures and not in its text. Here they come from a rule
(`campaigns.papers.prioritymeister.rule`), so that a choice of SLOs helps no claim. Claims about
one k use the middle of its sweep, k = 2. Exceptions: figure 8, with SLOs "high enough for all
policies to meet them" (k = 8), figure 9 (1.5) and figure 11 (1.25, and up to four times that). "All
percentiles" means up to the 99.9th, the highest with ten requests beyond it. Testbed traces are
shorter: an SLO is k = 3 times the 95th percentile alone (figures 8 and 9 as above), and 99.9 % of
the requests must still be within it: of fewer than a thousand, all.
"""

from __future__ import annotations

from dataclasses import replace

from analysis.core.claims import Claim, explained
from analysis.papers.prioritymeister.beyond_claims import BEYOND, BOUNDS
from analysis.papers.prioritymeister.contain_claims import BUCKETS, BURSTS, CONTAINED
from analysis.papers.prioritymeister.explained import EXPLAINED
from analysis.papers.prioritymeister.network_claims import LINKS
from analysis.papers.prioritymeister.tail_claims import SENSITIVE, TAILS
from analysis.papers.prioritymeister.why_claims import CAUSES

_DECLARED: tuple[Claim, ...] = (
    *BURSTS,
    *BUCKETS,
    *TAILS,
    *CONTAINED,
    *LINKS,
    *SENSITIVE,
    *BOUNDS,
    *BEYOND,
    *CAUSES,
)

CLAIMS: tuple[Claim, ...] = tuple(explained(claim, EXPLAINED.get(claim.id)) for claim in _DECLARED)
"""Claims about simulated runs; results that differ from the paper name the best explanation."""

LOCAL = "local"
_NOT_LOCAL = ("4", "10", "11", "levels", "settings", "table2")


def _modelled(one: Claim) -> bool:
    """Return True if the testbed's campaign lacks the cells: sharp bursts, the clients' link."""
    return "-sharp" in one.id or "-ingress" in one.id


def _local(one: Claim) -> Claim:
    return replace(one, id=f"{one.id}-{LOCAL}", figure=f"{one.figure}-{LOCAL}", machines=True)


LOCAL_CLAIMS: tuple[Claim, ...] = tuple(
    _local(one)
    for one in _DECLARED
    if one.figure.rstrip("abcd") not in _NOT_LOCAL and one not in CAUSES and not _modelled(one)
)
"""Claims about runs on a testbed: figures 1, 5, 7, 8 and 9."""
