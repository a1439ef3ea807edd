"""The moves that could be of use in any plan: the variables of equations (1) to (6)."""

from __future__ import annotations

import numpy as np

from controllers.ursa.distance import between
from controllers.ursa.instance import Instance, Int32
from controllers.ursa.methods import Request
from controllers.ursa.place.moves_model import Pairs
from controllers.ursa.place.problem import Bools, Ints
from controllers.ursa.state import State, object_load


def every_pair(instance: Instance, state: State, request: Request) -> Pairs:
    """All moves that could be of use: of objects that have a load, to any other node."""
    objects = np.arange(instance.replica_node.size, dtype=np.int64)
    return possible(
        instance, state, objects, np.arange(instance.nodes, dtype=np.int32), request.reach
    )


def possible(
    instance: Instance, state: State, objects: Ints, targets: Int32, reach: float
) -> Pairs:
    """The useful ones of all moves of `objects` to `targets`.

    Left out: objects without a load, targets that cannot carry the object even when empty (unless
    they are hot, and may be given up), moves that cost more than `reach`, and those within a fault
    domain that holds another replica of the partition.
    """
    number = np.repeat(objects, len(targets))
    target = np.tile(targets, len(objects))
    partition, replica = np.divmod(number, instance.replicas)
    source = instance.replica_node[partition, replica]
    load = object_load(instance, state, partition.astype(np.int32), replica)
    cost = between(instance.distance, instance.sender(partition, replica), target)
    keep = (source != target) & (load > 0) & (cost <= reach)
    keep &= (load <= instance.capacity[target]) | state.hot(instance)[target]
    pairs = Pairs(number, source, target, load, cost).where(keep)
    return pairs.where(~shared_already(instance, pairs))


def held_already(instance: Instance, pairs: Pairs) -> Bools:
    """Moves into a domain in which another replica of the partition begins.

    Two replicas that change places so are a swap of roles, not moves: whichever goes first is for a
    while where the other is.
    """
    partition, replica = np.divmod(pairs.object, instance.replicas)
    others = instance.fault_domain[instance.replica_node[partition]]
    others[np.arange(len(pairs)), replica] = -1
    held = (others == instance.fault_domain[pairs.target][:, None]).any(axis=1)
    return np.asarray(held)


def shared_already(instance: Instance, pairs: Pairs) -> Bools:
    """Moves within a domain that holds another replica of the partition, from before or now."""
    partition, replica = np.divmod(pairs.object, instance.replicas)
    domain = instance.fault_domain
    others = domain[instance.replica_node[partition]]
    others[np.arange(len(pairs)), replica] = -1
    within = domain[pairs.source] == domain[pairs.target]
    shared = (others == domain[pairs.source][:, None]).any(axis=1)
    return np.asarray(within & shared)
