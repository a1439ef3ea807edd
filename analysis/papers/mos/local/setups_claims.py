"""Claims of section 1: figure 1, the effect of partitioning the proxies. An improvement by 700 % is
read as 8 times."""

from __future__ import annotations

from analysis.core.claims import Claim, Compute, Evidence, Measured, NotRun
from analysis.papers.mos.local.measured import Rows, claim, of, over, worst_of
from analysis.papers.mos.local.runs import DEFAULT, FAVORS_LARGE, FAVORS_SMALL, label

PARTITION = {FAVORS_SMALL: 8.0, FAVORS_LARGE: 3.25}
"""Figure 1(a): small objects' QPS over Default's."""
DROP = (4.5, 6.0)
"""Figure 1(b): Default's bandwidth over FavorsSmall's: a drop by 350 % to 500 %."""

_NO_SETUPS = "no block has both setups with four workloads"


def _section_1() -> tuple[Claim, ...]:
    small, large, default = (
        of("setups", setup=name) for name in (FAVORS_SMALL, FAVORS_LARGE, DEFAULT)
    )
    return (
        claim(
            "small-favors-small",
            "1",
            "A proxy of their own with a fast link gives small objects (A and B) 700 % more QPS",
            over(small, default, "small_qps", _NO_SETUPS),
            value=PARTITION[FAVORS_SMALL],
            baseline="Default",
        ),
        claim(
            "small-favors-large",
            "1",
            "A proxy of their own with many cores gives small objects (A and B) 225 % more QPS",
            over(large, default, "small_qps", _NO_SETUPS),
            value=PARTITION[FAVORS_LARGE],
            baseline="Default",
        ),
        claim(
            "small-order",
            "1",
            "FavorsSmall gives small objects more QPS than FavorsLarge",
            over(small, large, "small_qps", _NO_SETUPS),
            value=PARTITION[FAVORS_SMALL] / PARTITION[FAVORS_LARGE],
            size=False,
            baseline="FavorsLarge",
        ),
        *(
            claim(
                f"large-favors-small-{letter.lower()}",
                "1",
                f"FavorsSmall costs workload {letter} its bandwidth: Default has 4.5 to 6 times as "
                "much (a drop by 350 % to 500 %)",
                over(default, small, f"{letter}_mb_s", _NO_SETUPS),
                value=sum(DROP) / 2,
                tolerance=(DROP[1] - DROP[0]) / (sum(DROP) - 2),
                baseline="FavorsSmall",
            )
            for letter in ("C", "D")
        ),
        claim(
            "large-favors-large",
            "1",
            "FavorsLarge leaves large objects (C and D) the bandwidth of Default (read as within "
            "25 %)",
            over(large, default, "large_mb_s", _NO_SETUPS),
            value=1.0,
            kind="within",
            tolerance=0.25,
            baseline="Default",
        ),
        claim(
            "latency-favors-large",
            "1",
            "FavorsLarge has a lower latency than Default for all workloads (the one that gains "
            "least)",
            worst_of(large, default, tuple(f"{x}_mean_s" for x in "ABCD"), _NO_SETUPS),
            baseline="Default",
            larger=False,
        ),
        *(
            claim(
                f"latency-{letters[0].lower()}-{other}",
                "1",
                f"FavorsSmall has the {'lowest' if better else 'highest'} latency of "
                f"{'small' if better else 'large'} objects ({' and '.join(letters)}; "
                f"{label(other)} beside it)",
                _latency(letters, small, of("setups", setup=other), better),
                baseline=label(other),
                larger=not better,
            )
            for letters, better in ((("A", "B"), True), (("C", "D"), False))
            for other in (DEFAULT, FAVORS_LARGE)
        ),
    )


def _latency(letters: tuple[str, ...], one: Rows, other: Rows, better: bool) -> Compute:
    """Compute the latency ratio for the workload with the weakest effect."""
    columns = tuple(f"{letter}_mean_s" for letter in letters)
    if better:
        return worst_of(one, other, columns, _NO_SETUPS)
    inverse = worst_of(other, one, columns, _NO_SETUPS)

    def compute(evidence: Evidence) -> Measured | NotRun:
        found = inverse(evidence)
        if isinstance(found, NotRun):
            return found
        return Measured(
            found.estimate.map(lambda value: 1 / value), found.ground, found.time_scale, found.note
        )

    return compute


CLAIMS = _section_1()
