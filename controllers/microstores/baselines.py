"""Fixed allocations to compare MOS with (sections 1 and 8.1), as parts of any pool.

- ``default``: monolithic; one microstore has everything and serves all tenants.
- ``static``: 75 % of the cores, 30 % of the network, all PCIe SSDs and 30 % of the SATA SSDs for
  small objects, the rest for large ones: the best that the paper's authors tried. Of two classes
  of disks, the faster counts as its PCIe SSDs and the slower as its SATA SSDs.
- ``favors-small``: the proxy of 8 cores at 10 Gbit/s for small objects, the proxy of 32 cores at
  1 Gbit/s for large ones; ``favors-large``: the reverse. Storage is divided in half.
- ``even``: the same for every microstore.

Parts are rounded to whole steps. No step is lost, and every microstore has a step of each resource.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controllers.microstores.shares import Steps, amount_of, whole_steps
from schemas.errors import UserError
from testbed.stores.microstores import Resources

DEFAULT = "default"
SMALL_PART: Mapping[str, tuple[float, float, float, float, float]] = {
    "static": (0.75, 0.75, 0.30, 1.0, 0.30),
    "favors-small": (8 / 40, 0.5, 10 / 11, 0.5, 0.5),
    "favors-large": (32 / 40, 0.5, 1 / 11, 0.5, 0.5),
    "even": (0.5, 0.5, 0.5, 0.5, 0.5),
}
"""Small objects' part of proxies' cores, storage servers' cores, network, SSDs and HDDs."""

ALLOCATIONS = (DEFAULT, *SMALL_PART)


def allocate(
    allocation: str,
    total: Resources,
    step: Resources,
    small: Sequence[str],
    large: Sequence[str],
) -> dict[str, Resources]:
    """Return the resources of each microstore; all of `small`, and all of `large`, share evenly.

    Raises:
        UserError: no such allocation, or less than a step of something for each.
    """
    names = [*small, *large]
    if allocation not in ALLOCATIONS:
        raise UserError(f"allocation {allocation!r}: allowed are {', '.join(ALLOCATIONS)}")
    if not names:
        raise UserError("an allocation needs at least one microstore")
    steps = whole_steps(total, step)
    if allocation == DEFAULT:
        nothing = Resources()
        return {name: total if name == names[0] else nothing for name in names}
    parts = SMALL_PART[allocation]
    if not steps[4]:  # one class of disks: there is no fast class for small objects
        parts = (*parts[:3], 0.5, 0.5)
    held = {name: [0] * len(steps) for name in names}
    for index, count in enumerate(steps):
        weights = _weights(parts[index], allocation == "even", small, large)
        for name, given in zip(names, _divided(count, weights, index), strict=True):
            held[name][index] = given
    for name, counts in held.items():
        if min(counts[:3]) < 1 or (any(steps[3:]) and not any(counts[3:])):
            raise UserError(
                f"the pool is too small for {len(names)} microstores: {name} would have less than "
                "a step of proxy cores, storage cores, network or disks"
            )
    return {name: amount_of(_steps(counts), step) for name, counts in held.items()}


def _steps(counts: Sequence[int]) -> Steps:
    return tuple(counts)


def _weights(part: float, even: bool, small: Sequence[str], large: Sequence[str]) -> list[float]:
    if even or not small or not large:
        return [1.0] * (len(small) + len(large))
    return [part / len(small)] * len(small) + [(1 - part) / len(large)] * len(large)


def _divided(count: int, weights: Sequence[float], index: int) -> list[int]:
    """Divide `count` steps by weight, by largest remainder. Every microstore first gets one step if
    they suffice, as it needs one; disks are exempt."""
    least = 1 if index < 3 and count >= len(weights) else 0
    total = sum(weights)
    exact = [count * weight / total for weight in weights]
    given = [max(least, int(value + 1e-9)) for value in exact]
    while sum(given) > count:
        spare = [i for i, number in enumerate(given) if number > least]
        given[max(spare, key=lambda i: (given[i] - exact[i], given[i]))] -= 1
    while sum(given) < count:
        given[max(range(len(given)), key=lambda i: (exact[i] - given[i], weights[i]))] += 1
    return given
