"""Test of new-controller's decisions without a testbed: `python -m pytest` on this file.

It is next to the controller's folder, not in it. Files in the folder are the controller's code, and
a change there makes all its runs anew.
"""

from pathlib import Path

from controllers.decide import decide, initial
from controllers.registry import create, find
from testbed.stores.contract import Observation, Osd, observation_to_json

POLICY = create(find("new-controller", [Path(__file__).parent / "new_controller"]), {}, seed=1)


def decided(pressures, affinities=()):
    """Return {osd: new affinity} after one step; a pressure of None could not be sensed."""
    osds = [Osd(number, f"node{number}") for number in range(len(pressures))]
    for number, affinity in enumerate(affinities):
        osds[number] = Osd(number, f"node{number}", primary_affinity=affinity)
    seen = {number: value for number, value in enumerate(pressures) if value is not None}
    observation = Observation(t_s=20.0, interval_s=20.0, pressure=seen, osds=tuple(osds))
    # Through JSON, as in a run.
    decision = decide(POLICY, initial(POLICY), observation_to_json(observation))
    return {action["osd"]: action["value"] for action in decision.actions}


def test_a_busy_osd_gives_reads_away():
    assert decided([90.0, 5.0, 5.0]) == {0: 0.3}


def test_and_gets_them_back_once_it_is_calm():
    assert decided([10.0, 5.0, 5.0], affinities=[0.3]) == {0: 1.0}


def test_in_between_nothing_changes():
    assert decided([45.0, 45.0], affinities=[0.3, 1.0]) == {}


def test_what_cannot_be_sensed_is_left_alone():
    assert decided([None, 5.0], affinities=[0.3]) == {}


def test_the_same_observation_gives_the_same_decision():
    assert decided([90.0, 70.0, 5.0]) == decided([90.0, 70.0, 5.0])
