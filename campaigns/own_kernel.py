"""Kernels of the interpreter that runs us, whatever kernelspecs a machine has."""

from __future__ import annotations

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager


class OwnKernel(KernelManager):
    """Starts our own interpreter under every kernel's name."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """A spec that no file can change."""
        return KernelSpec(**get_kernel_dict())
