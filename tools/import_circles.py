"""Contract of import-linter: no modules import each other in a circle.

Imports inside functions and under TYPE_CHECKING count.
"""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class NoCircles(Contract):
    """Contract that no module imports itself through others."""

    type_name = "circles"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Remove modules that import none of the rest, or that none of the rest imports."""
        rest = set(graph.modules)
        while ends := {
            module
            for module in rest
            if not graph.find_modules_directly_imported_by(module) & rest
            or not graph.find_modules_that_directly_import(module) & rest
        }:
            rest -= ends
        circles = {m: graph.find_modules_directly_imported_by(m) & rest for m in sorted(rest)}
        return ContractCheck(kept=not rest, metadata={"circles": circles})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print each module of a circle with the modules of circles that it imports."""
        for module, imported in check.metadata["circles"].items():
            output.print_error(f"{module} -> {', '.join(sorted(imported))}")
