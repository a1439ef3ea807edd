"""Kernel of notebooks in the running interpreter, whatever kernelspecs exist on the machine. A
module of its own, because Jupyter's libraries take long to import."""

from __future__ import annotations

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager


class OwnKernel(KernelManager):
    """Manager that starts the running interpreter under every kernel name."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """Kernelspec that no file can change."""
        return KernelSpec(**get_kernel_dict())
