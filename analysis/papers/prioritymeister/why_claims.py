"""Suspected causes why figures 7, 9, 10 and 11 differ from the paper, as claims of the campaign
`pm-why`, which varies one thing at a time. No claim is the paper's; all but the claims on Cake's
upper bound were declared before any of their runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.core.claims import Claim
from analysis.papers.prioritymeister.claim_kinds import claim
from analysis.papers.prioritymeister.measured import Value, all_met, gap, missed_share
from analysis.papers.prioritymeister.runs import LABELS, LONGEST, Rows, varied
from analysis.papers.prioritymeister.tail_claims import orders_met, same_order


@dataclass(frozen=True)
class Setting:
    """Difference from a figure's cells, in words and as arguments of `runs.varied`; `words` of the
    base describe the figure's own cells."""

    name: str
    words: str
    at: Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A figure's cells, the value of interest, and settings to compare with the first setting.

    Attributes:
        figure: figure of the paper.
        scenario: scenario of the cells.
        base: parameters that all settings share unless they vary them.
        settings: the figure's own setting first.
        value: value by block.
        unit: unit of the value.
        policies: policies that were run.
    """

    figure: str
    scenario: str
    base: Mapping[str, Any]
    settings: Sequence[Setting]
    value: Value
    unit: str
    policies: Sequence[str]

    def rows(self, policy: str, setting: Setting) -> Rows:
        """Select rows of a policy in a setting."""
        at = {**self.base, **setting.at}
        return lambda table: varied(table, self.scenario, policy, **at)

    def setting(self, name: str) -> Setting:
        """Return the setting with the name."""
        return next(one for one in self.settings if one.name == name)


def _permuted(rows: pd.DataFrame) -> pd.Series:
    return orders_met(rows[rows["permutation"].notna()])


_FIGURE = Setting("base", "as in the figure", {})
_LONGEST = Setting("longest", "SLOs of the longest", {"slo_percentile": LONGEST})
ORDERS = Question(
    "11",
    "disk",
    {"seconds": 300.0, "k": 1.25, "permutation": ...},
    (
        _FIGURE,
        Setting("k", "k = 2", {"k": 2.0}),
        _LONGEST,
        Setting("copy", "copy of 64 KiB", {"copy_kib": 64}),
        Setting("blocking", "bound with blocking", {"blocking": True}),
    ),
    _permuted,
    "permutations of 6",
    ("pm", "edf", "byslo"),
)
ESTIMATOR = Question(
    "10",
    "disk",
    {"seconds": 1200.0, "k": 2.0, "estimator": ...},
    (
        _FIGURE,
        Setting("0.4", "0.4 of the bytes", {"network_share": 0.4}),
        Setting("0.2", "0.2 of the bytes", {"network_share": 0.2}),
        _LONGEST,
    ),
    same_order,
    "share of the plans",
    ("pm",),
)
NETWORK = Question(
    "9",
    "network",
    {"seconds": 300.0, "k": 1.5},
    (
        _FIGURE,
        Setting("k3", "k = 3", {"k": 3.0}),
        Setting("k5", "k = 5", {"k": 5.0}),
        _LONGEST,
    ),
    all_met(),
    "share of the runs that meet all SLOs",
    ("pm", "byslo", "ps"),
)


def _burst(label: str) -> Question:
    sharp = (
        Setting(f"sharp{s}", f"bursts x{s}", {"gaps": "sharp", "sharpness": float(s)})
        for s in (3, 5, 10)
    )
    return Question(
        "7",
        "burst",
        {"seconds": 960.0, "k": 2.0, "burst": label},
        (
            _FIGURE,
            *(sharp if label == "H" else ()),
            Setting("mixed", "partly sequential", {"access": "mixed"}),
            Setting("copy", "copy of 64 KiB", {"copy_kib": 64}),
            Setting("k", "k = 4", {"k": 4.0}),
            Setting("copy-k", "copy of 64 KiB, k = 4", {"copy_kib": 64, "k": 4.0}),
            Setting("upper2", "Cake's upper bound 2", {"cake_upper": 2.0}),
            Setting("upper4", "Cake's upper bound 4", {"cake_upper": 4.0}),
        ),
        missed_share,
        "share of the requests that miss",
        ("pm", "cake"),
    )


LOW, HIGH = _burst("F"), _burst("H")


def _more(name: str, question: Question, setting: str, policy: str, statement: str) -> Claim:
    """Return the claim that a setting has more of the question's value than the figure's own."""
    chosen, base = question.setting(setting), question.settings[0]
    return claim(
        f"why-{name}",
        question.figure,
        f"{statement} (suspected cause; not in the paper)",
        gap(question.rows(policy, chosen), question.rows(policy, base), question.value, _WHY),
        unit=f"{question.unit}, difference",
        baseline=base.words,
    )


def _less(name: str, question: Question, setting: str, policy: str, statement: str) -> Claim:
    """Return the claim that a setting has less of the value, as a positive difference."""
    chosen, base = question.setting(setting), question.settings[0]
    return claim(
        f"why-{name}",
        question.figure,
        f"{statement} (suspected cause; not in the paper)",
        gap(question.rows(policy, base), question.rows(policy, chosen), question.value, _WHY),
        unit=f"{question.unit}, the figure's less this",
        baseline=chosen.words,
    )


def _ahead(name: str, question: Question, setting: str, other: str) -> Claim:
    """Return the claim that PM does better than another policy in a setting."""
    chosen = question.setting(setting)
    return claim(
        f"why-{name}-{setting}-{other}",
        question.figure,
        f"With {chosen.words}: PM does better than {LABELS[other]} (not in the paper)",
        gap(question.rows("pm", chosen), question.rows(other, chosen), question.value, _WHY),
        unit=f"{question.unit}, difference",
        baseline=LABELS[other],
    )


_WHY = "no cells of pm-why with and without it"
_Maker = Callable[[str, Question, str, str, str], Claim]
_STATED: tuple[tuple[_Maker, str, Question, str, str, str], ...] = (
    (_more, "orders-k", ORDERS, "k", "pm", "PM meets more permutations with k = 2 than with 1.25"),
    (
        _more,
        "orders-longest",
        ORDERS,
        "longest",
        "pm",
        "PM, which plans for the longest latency, meets more permutations when SLOs are made of "
        "the longest latency alone and not of the 99.9th percentile",
    ),
    (
        _more,
        "orders-copy",
        ORDERS,
        "copy",
        "pm",
        "PM meets more permutations when the copy's requests, which are not interrupted, are short",
    ),
    (
        _more,
        "orders-blocking",
        ORDERS,
        "blocking",
        "pm",
        "PM meets more permutations when it plans with the bound that counts blocking",
    ),
    *(
        (
            _more,
            f"estimator-{share}",
            ESTIMATOR,
            share,
            "pm",
            f"The constant estimator keeps the order more often when A, B and C send {share} of "
            "the bytes for the same storage load, and so are less sequential",
        )
        for share in ("0.4", "0.2")
    ),
    (
        _more,
        "estimator-longest",
        ESTIMATOR,
        "longest",
        "pm",
        "The constant estimator keeps the order more often when SLOs are made of the longest "
        "latency alone",
    ),
    *(
        (
            _more,
            f"network-{name}",
            NETWORK,
            name,
            "pm",
            f"PM meets all SLOs of the network more often with {words}",
        )
        for name, words in (
            ("k3", "k = 3 than with 1.5"),
            ("k5", "k = 5 than with 1.5"),
            ("longest", "SLOs of the longest latency alone"),
        )
    ),
    *(
        (_less, f"low-{name}", LOW, name, "cake", f"Cake misses fewer SLOs of F {words}")
        for name, words in (
            ("mixed", "when its requests are smaller and partly sequential"),
            ("copy", "when the copy's requests are short"),
            ("k", "with k = 4 than with 2"),
            ("upper4", "with an upper bound of 4 than with 1.2"),
        )
    ),
    *(
        (
            _more,
            f"high-{name}-{policy}",
            HIGH,
            name,
            policy,
            f"{LABELS[policy]} misses more SLOs at C_A^2 = 40 when in bursts requests come "
            f"{name.removeprefix('sharp')} times as often as on average",
        )
        for name in ("sharp3", "sharp5", "sharp10")
        for policy in ("cake", "pm")
    ),
)

CAUSES: tuple[Claim, ...] = (
    *(
        make(name, question, setting, policy, words)
        for make, name, question, setting, policy, words in _STATED
    ),
    *(
        _ahead("orders", ORDERS, name, other)
        for name in ("k", "longest")
        for other in ("byslo", "edf")
    ),
    *(
        _ahead("network", NETWORK, name, other)
        for name in ("k3", "longest")
        for other in ("byslo", "ps")
    ),
)
