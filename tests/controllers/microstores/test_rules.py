"""R1 to R7: the optimiser's plans satisfy them, and a violation is reported with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mos_stores import MODEL, STEP, TOTAL, A, C

from controllers.microstores.optimiser import plan
from controllers.microstores.problem import BANDWIDTH, LATENCY, ResourcePool, Sla, TenantDemand
from controllers.microstores.rules import (
    BROKEN,
    HOLDS,
    RULES,
    UNKNOWN,
    Allocation,
    broken,
    check_rules,
    division_of,
)
from testbed.stores.microstores import Resources

KINDS = {"web": A.workload, "video": C.workload}
GOOD = Allocation(
    Resources(8, 8, 1e9, 4, 4),
    {"small": Resources(6, 6, 2e8, 2, 0), "large": Resources(2, 2, 8e8, 1, 2)},
    {"web": "small", "video": "large"},
    link={"small": 2e8, "large": 8e8},
)


def verdict(findings, rule, store=""):
    (found,) = [f for f in findings if f.rule == rule and f.microstore == store]
    return found


def changed(**stores):
    return replace(GOOD, stores={**GOOD.stores, **stores})


def test_a_division_by_the_rules_keeps_them_all():
    assert not broken(check_rules(GOOD, KINDS))
    found = check_rules(GOOD, KINDS)
    assert sorted({f.rule for f in found}) == list(RULES)
    assert all(f.sentence and f.to_json()["rule"] == f.rule for f in found)


def test_r1_who_serves_both_is_named():
    mixed = replace(GOOD, tenants={"web": "small", "video": "small"})
    found = verdict(check_rules(mixed, KINDS), "R1")
    assert found.verdict == BROKEN
    assert "small serves both" in found.sentence
    assert found.numbers["mixed"] == 1


@pytest.mark.parametrize(
    ("rule", "store", "held", "words"),
    [
        ("R2", "small", Resources(1, 1, 9e8, 1, 0), "12 % of the proxies' cores and 90 %"),
        ("R3", "large", Resources(6, 6, 1e8, 1, 0), "10 % of the network and 75 %"),
        ("R4", "small", Resources(8, 1, 2e8, 1, 0), "8 cores of proxies and 1 of storage"),
        ("R5", "large", Resources(2, 2, 2e8, 1, 0), "200 MB/s to the clients and 800 MB/s"),
    ],
)
def test_r2_to_r5_by_parts_of_the_pool(rule, store, held, words):
    found = verdict(check_rules(changed(**{store: held}), KINDS), rule, store)
    assert found.verdict == BROKEN
    assert words in found.sentence
    assert verdict(check_rules(GOOD, KINDS), rule, store).verdict == HOLDS


@pytest.mark.parametrize(
    ("rule", "store", "held", "words"),
    [
        ("R2", "small", Resources(6, 6, 1e6, 1, 0), "the network ends before the CPU"),
        ("R3", "large", Resources(0.1, 2, 8e8, 4, 0), "its tenants need"),
        ("R6", "small", Resources(0.1, 0.1, 9e8, 1, 0), "the rest would serve large objects"),
        ("R7", "large", Resources(2, 2, 8e8, 0, 1), "its disks carry 15 requests a second"),
        ("R7", "large", Resources(2, 2, 1e8, 2, 2), "would carry as much for less"),
    ],
)
def test_rules_by_the_model(rule, store, held, words):
    needy = replace(GOOD, needed={"small": 500, "large": 40})
    division = replace(needy, stores={**GOOD.stores, store: held})
    found = verdict(check_rules(division, KINDS, MODEL), rule, store)
    assert found.verdict == BROKEN, found
    assert words in found.sentence
    assert found.numbers


def test_r3_without_a_need_has_the_cpu_carry_what_the_network_does():
    assert not GOOD.needed
    assert (
        verdict(
            check_rules(changed(large=Resources(4, 4, 5e8, 1, 2)), KINDS, MODEL), "R3", "large"
        ).verdict
        == HOLDS
    )
    starved = changed(large=Resources(0.1, 0.1, 8e8, 1, 2))
    found = verdict(check_rules(starved, KINDS, MODEL), "R3", "large")
    assert found.verdict == BROKEN
    assert "the CPU ends before it" in found.sentence


def test_what_is_not_known_is_told_so():
    found = check_rules(replace(GOOD, link={}), KINDS)
    assert verdict(found, "R5", "small").verdict == UNKNOWN
    assert verdict(found, "R6", "small").verdict == UNKNOWN
    assert verdict(found, "R7", "large").verdict == UNKNOWN


def demands(web, video):
    return [
        TenantDemand("web", "small", A.workload, web, Sla(LATENCY, 0.09, 0.045)),
        TenantDemand("video", "large", C.workload, 8, Sla(BANDWIDTH, video * 1e6, video * 2e6)),
    ]


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 40), st.integers(10, 60))
def test_plans_that_meet_every_sla_keep_the_rules(web, video):
    """The pool is as large as figure 12's, with disks at 1 and 3: R7's default prices."""
    pool = ResourcePool(Resources(4, 4, 2.5e8, 8, 8), STEP)
    made = plan(MODEL, demands(web, video), pool)
    assert not made.violated
    ours = replace(division_of(made, pool.total), prices=Resources(ssds=1 / 8, hdds=1 / 8))
    found = check_rules(ours, KINDS, MODEL)
    assert not broken(found), [f.sentence for f in broken(found)]
    assert {f.rule for f in found if f.verdict == HOLDS} == set(RULES) - {"R5"}


def test_a_plan_that_cannot_meet_them_says_which_rule_gives():
    made = plan(MODEL, demands(60, 100), ResourcePool(TOTAL, STEP))
    assert made.violated
    found = broken(check_rules(division_of(made, TOTAL), KINDS, MODEL))
    assert found
