"""This module has a contract of import-linter on imports that its other contracts do not see."""

from __future__ import annotations

from itertools import accumulate

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class OwnPackage(Contract):
    """An OwnPackage contract forbids that a module imports a package that it lies in.

    That package may import the module, which would make a circle.
    """

    type_name = "own_package"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = [
            f"{module}:{line['line_number']}: {line['line_contents']}"
            for module in sorted(graph.modules)
            for package in accumulate(module.split(".")[:-1], "{}.{}".format)
            for line in graph.get_import_details(importer=module, imported=package)
        ]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["found"]:
            output.print_error(line)
