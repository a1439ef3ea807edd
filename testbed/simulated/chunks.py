"""Long sequence with cheap snapshots: a snapshot costs only the changed parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar, overload

Item = TypeVar("Item")

SHIFT = 4
"""A chunk has 2 ** SHIFT items: a step that changes one in a hundred copies about one in ten."""


class Frozen(Sequence[Item]):
    """Snapshot of the items, in chunks; equal to a tuple of the same items."""

    __slots__ = ("_chunks", "_length")

    def __init__(self, chunks: tuple[tuple[Item, ...], ...], length: int) -> None:
        self._chunks = chunks
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._chunks)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"item {index} of {self._length}")
        return self._chunks[place >> SHIFT][place & ((1 << SHIFT) - 1)]

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (Frozen, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Changing(Generic[Item]):
    """The changing items."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = list(items)
        self._chunks = [self._chunk(number) for number in range(-(-len(self._items) >> SHIFT))]
        self._changed = set[int]()
        self._frozen: Frozen[Item] | None = None

    def put(self, places: Iterable[int], items: Iterable[Item]) -> None:
        """Replace the items at these places."""
        for place, item in zip(places, items, strict=True):
            self._items[place] = item
            self._changed.add(place >> SHIFT)

    def frozen(self) -> Frozen[Item]:
        """Return the current items; the same object until an item is replaced."""
        if self._frozen is None or self._changed:
            for number in self._changed:
                self._chunks[number] = self._chunk(number)
            self._changed.clear()
            self._frozen = Frozen(tuple(self._chunks), len(self._items))
        return self._frozen

    def _chunk(self, number: int) -> tuple[Item, ...]:
        return tuple(self._items[number << SHIFT : (number + 1) << SHIFT])
