"""MOS++ with fine-tuning of every resource for itself.

Algorithm 2 has one utilization for a microstore and adds or removes "a container". Here every
resource is judged by its own utilization, and a container is a step of one resource, so that
network can be given back while cores are added. The rest is ``mos-pp``.
"""

from __future__ import annotations

from controllers.mos_pp.policy import MosPlusPlus, ProvisioningEpoch, one_less, one_more
from testbed.stores.microstores import MEASURES, Microstore


class MosPlusPlusByResource(MosPlusPlus):
    """MOS++ that tunes every resource for itself."""

    name = "mos-pp-resource"

    def _tune(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        self._less(epoch, store)
        self._more(epoch, store)

    def _less(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        """Give back a step of every resource that is too idle."""
        for measure in MEASURES:
            busy = store.utilization.get(measure)
            if busy is not None and busy < self._p.util_low and self._spares(epoch, store, measure):
                one = one_less([measure], epoch.book.held[store.name])
                self._give_back(epoch, store.name, one, f"{measure} below the band")

    def _spares(self, epoch: ProvisioningEpoch, store: Microstore, measure: str) -> bool:
        """Return True if a microstore can do without a step of a resource below the band."""
        del epoch, store, measure
        return True

    def _more(self, epoch: ProvisioningEpoch, store: Microstore) -> None:
        """Add a step of every resource that is too busy."""
        for measure in MEASURES:
            if store.utilization.get(measure, 0.0) > self._p.util_high:
                one = one_more([measure], store.name, epoch.book)
                self._take(epoch, store.name, one, f"{measure} above the band")


create = MosPlusPlusByResource.create
