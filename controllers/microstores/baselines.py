"""Fixed allocations that MOS is compared with (sections 1 and 8.1), as parts of any pool.

- ``default``: monolithic; one microstore has everything and serves everybody.
- ``static``: 75 % of the cores, 30 % of the network, all PCIe SSDs and 30 % of the SATA SSDs for
  small objects, the rest for large ones: the best of what the paper's authors tried. Of two classes
  of disks the faster is its PCIe SSDs and the slower its SATA SSDs.
- ``favors-small``: the proxy of 8 cores at 10 Gbit/s for small objects, that of 32 cores at
  1 Gbit/s for large ones; ``favors-large``: the other way round. Storage is divided in half.
- ``even``: the same for everybody.

Parts are rounded to whole steps, none is lost and everybody has a step of each.
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
"""Of proxies' cores, storage servers' cores, network, SSDs, HDDs: the part for small objects."""

ALLOCATIONS = (DEFAULT, *SMALL_PART)


def allocate(
    allocation: str,
    total: Resources,
    step: Resources,
    small: Sequence[str],
    large: Sequence[str],
) -> dict[str, Resources]:
    """What each microstore holds; those of `small`, and of `large` objects, share evenly.

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
    if not steps[4]:  # one class of disks only: there is no fast one to keep for small objects
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
    """`count` steps by weight, by largest remainder; one for each first where there are enough and
    it is no disk, as every microstore needs it."""
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
