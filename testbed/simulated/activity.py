"""Operations a second of the modelled PGs and OSDs, from the simulator's counters."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.simulated.process import SimulatorProcess
from testbed.stores.contract import Activity, OpRates

_DIGITS = 3


class ActivityTable:
    """Counters of the last call: rates are means since then. They are exact and immediate; a real
    manager gets the PGs' counters every few seconds."""

    def __init__(self, process: SimulatorProcess, pgs: Sequence[str]) -> None:
        self._process = process
        self._names = tuple(pgs)
        self._before: tuple[float, list[int], list[int]] | None = None

    def read(self) -> Activity:
        """Return the rates since the previous call; none at the first call."""
        answer = self._process.ask("activity")
        now_s = float(answer.result["now_s"])
        pgs, osds = list(answer.blocks["pgs"]), list(answer.blocks["osds"])
        before, self._before = self._before, (now_s, pgs, osds)
        unclean = tuple(sorted(self._names[number] for number in answer.blocks["unclean"]))
        if before is None or now_s <= before[0]:
            return Activity(unclean=unclean)
        seconds = now_s - before[0]
        of_pgs = _rates(before[1], pgs, seconds)
        of_osds = _rates(before[2], osds, seconds)
        named = dict(sorted(zip(self._names, of_pgs, strict=True)))
        return Activity(named, dict(enumerate(of_osds)), unclean)


def _rates(before: Sequence[int], now: Sequence[int], seconds: float) -> list[OpRates]:
    each = [round((b - a) / seconds, _DIGITS) for a, b in zip(before, now, strict=True)]
    return [OpRates(reads, writes) for reads, writes in zip(each[::2], each[1::2], strict=True)]
