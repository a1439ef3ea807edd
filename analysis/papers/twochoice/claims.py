"""Claims of the two-choice paper about its simulations (section III, figures 3 and 4), and claims
beyond it.

All claims are about decisions of schedulers in a simulation, as in the paper: they reproduce the
paper's simulation, not machines. The paper's text gives relations and hardly a number; where it
says "significantly" or "stable", the statement gives our reading. The paper describes *preassign*
as a strategy on top of two-choice and, in the order of the text, of the collaborative probe. So its
claims are tested for both, alone and with both strategies together.
"""

from __future__ import annotations

from functools import partial

from analysis.core.claims import Claim, declared
from analysis.papers.twochoice.measured import (
    at_setting,
    below_the_mean,
    farthest_mean,
    growth,
    mean_over_ratios,
    most_over_loads,
    number_at,
    of,
    over_ratios,
    servers_of_load,
)
from analysis.papers.twochoice.runs import (
    BOTH,
    COLLABORATIVE,
    FIXED,
    NATIVE,
    ORACLE,
    PREASSIGN,
    PREQUAL,
    RANDOM,
)

FEW = 0.1
"""Maximum "small" straggler ratio."""

ALIKE = 0.25
"""Maximum relative difference that is "not significant" or "stable"."""

EVEN = 10.0
"""Writes per server: 10,000 processes, 1,000 servers."""

LARGE = {"servers": 10_000, "processes": 1_000_000, "straggler_ratio": 0.1}
SCALE_LEARN = 5

READINGS = (
    (BOTH, "Preassign, with the collaborative probe,", ""),
    (PREASSIGN, "Preassign", "-alone"),
)
"""Possible readings of the paper's "preassign"."""


def _stragglers(share: float) -> bool:
    return share > 0


def _few(share: float) -> bool:
    return 0 < share <= FEW


_claim = partial(declared, prefix="twochoice", paper="twochoice", machines=False)


_RESPONSES: tuple[Claim, ...] = (
    _claim(
        "random-worse",
        "3",
        "Random selection is slower than fixed placement, whatever the straggler ratio",
        over_ratios(of(RANDOM), of(FIXED), "least"),
        baseline="fixed",
    ),
    _claim(
        "native-not-better",
        "3",
        "Native two-choice is not significantly better than fixed placement even with few "
        f"stragglers (up to {100 * FEW:g} %; read as within {100 * ALIKE:g} % of it)",
        over_ratios(of(NATIVE), of(FIXED), "farthest", _few),
        value=1.0,
        kind="within",
        baseline="fixed",
        tolerance=ALIKE,
    ),
    _claim(
        "native-grows",
        "3",
        "The response of native two-choice grows with the number of stragglers",
        growth(of(NATIVE), _stragglers),
        baseline="the fewest stragglers",
    ),
    _claim(
        "collaborative-better",
        "3",
        "The collaborative probe improves native two-choice (over all straggler ratios)",
        mean_over_ratios(of(COLLABORATIVE), of(NATIVE)),
        baseline="two-choice",
        larger=False,
    ),
    _claim(
        "preassign-better",
        "3",
        "Preassign reduces the response of the collaborative probe, whatever the straggler ratio",
        over_ratios(of(BOTH), of(COLLABORATIVE), "largest"),
        baseline="collaborative",
        larger=False,
    ),
    _claim(
        "preassign-better-alone",
        "3",
        "Preassign reduces the response of native two-choice, whatever the straggler ratio",
        over_ratios(of(PREASSIGN), of(NATIVE), "largest"),
        baseline="two-choice",
        larger=False,
    ),
    *(
        claim
        for series, who, suffix in READINGS
        for claim in (
            _claim(
                f"better-than-fixed{suffix}",
                "3",
                f"{who} is faster than fixed placement, whatever the straggler ratio",
                over_ratios(of(series), of(FIXED), "largest"),
                baseline="fixed",
                larger=False,
            ),
            _claim(
                f"stable{suffix}",
                "3",
                f"{who} is stable while the stragglers grow to half of the servers (read as within "
                f"{100 * ALIKE:g} %)",
                growth(of(series)),
                value=1.0,
                kind="within",
                baseline="no stragglers",
                tolerance=ALIKE,
            ),
        )
    ),
)

_NONE = "Writes on the straggler that is given most"

_PLACEMENTS: tuple[Claim, ...] = (
    _claim(
        "load-7",
        "4",
        "Input: about 60 of the servers have a load of 7",
        servers_of_load(7),
        value=60.0,
        unit="servers",
        no_effect=0.0,
    ),
    _claim(
        "few-stragglers",
        "4",
        "Input: fewer than 10 servers are stragglers",
        number_at(of(FIXED), "stragglers"),
        value=10.0,
        kind="at_most",
        unit="servers",
        no_effect=0.0,
        tolerance=0.0,
    ),
    _claim(
        "fixed-even",
        "4",
        "Fixed placement gives every server the same number of writes, the average",
        number_at(of(FIXED), "most"),
        value=EVEN,
        kind="within",
        unit="writes",
        tolerance=0.0,
    ),
    _claim(
        "random-even",
        "4",
        "Random selection gives servers of every load the average number (read as within 5 %)",
        farthest_mean(RANDOM),
        value=1.0,
        kind="within",
        baseline="the average",
        tolerance=0.05,
    ),
    _claim(
        "random-most",
        "4",
        "What random selection gives a server at most is more than with fixed placement, at every "
        "load",
        most_over_loads(RANDOM, FIXED),
        baseline="fixed",
    ),
    _claim(
        "random-straggler",
        "4",
        "Random selection places more than the average on one of the stragglers",
        number_at(of(RANDOM), "straggler_most"),
        unit="writes",
        no_effect=EVEN,
    ),
    _claim(
        "fixed-straggler",
        "4",
        "Fixed placement does not avoid stragglers: they get the average",
        number_at(of(FIXED), "straggler_most"),
        value=EVEN,
        kind="within",
        unit="writes",
        tolerance=0.0,
    ),
    *(
        _claim(
            f"{series}-avoids",
            "4",
            f"{_NONE}, with {who}: none",
            number_at(of(series), "straggler_most"),
            value=0.0,
            kind="within",
            unit="writes",
            tolerance=0.0,
        )
        for series, who in (
            (NATIVE, "native two-choice"),
            (COLLABORATIVE, "the collaborative probe"),
            (PREASSIGN, "preassign"),
            (BOTH, "both strategies"),
        )
    ),
    _claim(
        "native-herds",
        "4",
        "Native two-choice places more than the average on servers with lower loads",
        below_the_mean(NATIVE, None),
        baseline="the average",
    ),
    _claim(
        "collaborative-herds",
        "4",
        "The collaborative probe places even more than native two-choice on servers with lower "
        "loads",
        below_the_mean(COLLABORATIVE, NATIVE),
        baseline="two-choice",
    ),
    _claim(
        "preassign-spreads",
        "4",
        "Preassign avoids what makes new stragglers: the most that a server with a lower load is "
        "given is less than with the collaborative probe",
        below_the_mean(BOTH, COLLABORATIVE, "most"),
        baseline="collaborative",
        larger=False,
    ),
    _claim(
        "preassign-spreads-alone",
        "4",
        "Preassign avoids what makes new stragglers: the most that a server with a lower load is "
        "given is less than with native two-choice",
        below_the_mean(PREASSIGN, NATIVE, "most"),
        baseline="two-choice",
        larger=False,
    ),
)

_BEYOND: tuple[Claim, ...] = (
    _claim(
        "oracle",
        "3",
        "Both strategies are slower than the oracle, whatever the straggler ratio",
        over_ratios(of(BOTH), of(ORACLE), "least"),
        baseline="oracle",
    ),
    _claim(
        "prequal",
        "3",
        "Both strategies are faster than Prequal's rule, whatever the straggler ratio",
        over_ratios(of(BOTH), of(PREQUAL), "largest"),
        baseline="Prequal",
        larger=False,
    ),
    _claim(
        "learning",
        "3",
        "Having learned P(load) makes both strategies faster (over all straggler ratios)",
        mean_over_ratios(of(BOTH), of("both-cold")),
        baseline="cold",
        larger=False,
    ),
    _claim(
        "scale",
        "scale",
        "With 10,000 servers and 1,000,000 processes both strategies are faster than fixed "
        "placement",
        at_setting(of(BOTH, learn_rounds=SCALE_LEARN, **LARGE), of(FIXED, **LARGE)),
        baseline="fixed",
        larger=False,
    ),
)

CLAIMS: tuple[Claim, ...] = (*_RESPONSES, *_PLACEMENTS, *_BEYOND)
