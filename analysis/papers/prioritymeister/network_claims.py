"""Claims of section 6.4 (figure 9): the network as the bottleneck."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from analysis.core.claims import Claim
from analysis.papers.prioritymeister.claim_kinds import K_NETWORK, always, beats, of
from analysis.papers.prioritymeister.measured import all_met, share
from analysis.papers.prioritymeister.runs import Rows, by_block


def _network(bottleneck: str) -> Callable[[str], Rows]:
    return lambda variant: of("network", variant, k=K_NETWORK, bottleneck=bottleneck)


def _not_first(rows: pd.DataFrame) -> pd.Series:
    """Return 1 for blocks where K does not have the first level on the way out, else 0."""
    found = rows[rows["workload"] == "K"]
    return by_block(
        found.assign(not_first=(found["level_network-out"] > 1).astype(float)), "not_first"
    )


_WHY_NETWORK = "no block of the scenario network, k = 1.5, under all policies compared"


def _shared_link(bottleneck: str, words: str) -> Sequence[Claim]:
    rows = _network(bottleneck)
    return (
        always(
            f"network-{bottleneck}",
            "9",
            f"PM meets all SLOs at all percentiles where {words} is the bottleneck",
            share(rows("pm"), all_met(), _WHY_NETWORK),
            "share of the runs",
        ),
        *(
            beats(
                f"network-{bottleneck}-{other}",
                "9",
                f"PM meets all SLOs and {name} does not where {words} is the bottleneck",
                rows,
                other=other,
                why=_WHY_NETWORK,
            )
            for other, name in (("byslo", "bySLO"), ("ps", "ps, without network QoS,"))
        ),
    )


LINKS = (
    *_shared_link("egress", "the server's link out"),
    *_shared_link("ingress", "the clients' link in"),
    always(
        "network-ramdisk",
        "9",
        "PM does not give the ramdisk's workload (K, the lowest SLO) the highest network priority",
        share(_network("egress")("pm"), _not_first, _WHY_NETWORK),
        "share of the plans",
    ),
)
