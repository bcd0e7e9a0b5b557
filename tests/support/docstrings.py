"""The public names of the package, and the examples in their docstrings."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Users import names from these modules. A module's `__all__` and what it defines are public.
PLACES = (
    "bluefog_pg",
    "bluefog_pg.collectives",
    "bluefog_pg.common.util",
    "bluefog_pg.ddp_hooks",
    "bluefog_pg.notebook",
    "bluefog_pg.optim",
    "bluefog_pg.topology_util",
    "bluefog_pg.torch",
    "bluefog_pg.torch.ddp",
    "bluefog_pg.torch.optim",
    "bluefog_pg.torch.optimizers",
)
# These modules have an example of their own. Programs call torch.ops.bluefog instead of what
# `functional` defines, whose arguments no program can make.
MODULES = ("bluefog_pg.collectives", "bluefog_pg.ddp_hooks", "bluefog_pg.functional")
MODULES += ("bluefog_pg.topology_util", "bluefog_pg.torch")
# Only the package calls these methods, though their names have no underscore.
FOR_THE_PACKAGE = (
    "DecentralizedDataParallel.backward",
    "DecentralizedDataParallel.gradient",
    "Window.checker",
)
SECTION = re.compile(r"^Example:\n((?:[ \t]+.*\n|\n)+)", re.MULTILINE)
ON_RANKS = re.compile(r"\bbf\b")


@dataclass(frozen=True)
class Documented:
    """A public module, class, function, method or property."""

    place: str
    name: str = ""  # the dotted name below the place, which is empty for the module itself

    @property
    def title(self) -> str:
        return f"{self.place}.{self.name}" if self.name else self.place

    @property
    def thing(self) -> Any:
        found: Any = importlib.import_module(self.place)
        for part in filter(None, self.name.split(".")):
            found = getattr(found, part)
        return found

    @property
    def docstring(self) -> str:
        return inspect.getdoc(self.thing) or ""

    @property
    def example(self) -> str:
        """Return the lines of the section without indentation, or nothing where there is none."""
        found = SECTION.search(self.docstring + "\n")
        return inspect.cleandoc("\n" + found[1]) + "\n" if found and ">>>" in found[1] else ""

    @property
    def needs_ranks(self) -> bool:
        return ON_RANKS.search(self.example) is not None

    def failures(self, **names: Any) -> str:
        """Run the example with these globals, and return what differs, if anything does."""
        parsed = doctest.DocTestParser().get_doctest(self.example, names, self.title, None, 0)
        told: list[str] = []
        doctest.DocTestRunner(verbose=False).run(parsed, out=told.append)
        return "".join(told)


def documented() -> list[Documented]:
    """Return all public names. Each thing occurs once, by its first name."""
    found: dict[int, Documented] = {}
    for place in PLACES:
        for each in names_of(place):
            found.setdefault(id(inspect.unwrap(each.thing)), each)
    return [*map(Documented, MODULES), *found.values()]


def names_of(place: str) -> Iterator[Documented]:
    """Yield the classes and functions of a place, and the methods of the classes."""
    module = importlib.import_module(place)
    names = [*getattr(module, "__all__", ()), *vars(module)]
    for name in dict.fromkeys(names):
        thing = getattr(module, name)
        is_own = not name.startswith("_") and getattr(thing, "__module__", "") == place
        if not is_own and name not in getattr(module, "__all__", ()):
            continue
        if inspect.isclass(thing):
            yield Documented(place, name)
            yield from methods_of(place, name, thing)
        elif inspect.isroutine(thing):
            yield Documented(place, name)


def methods_of(place: str, name: str, cls: type) -> Iterator[Documented]:
    """Yield the methods and properties that programs use.

    The package calls those of compiled classes, and an optimizer those of its order and compressor.
    A method that overrides another one, and has no docstring, is documented there. A property that
    a function makes is documented with its class.
    """
    from bluefog_pg.optim import Order

    is_compiled = cls.__module__ == "bluefog_pg._C"
    if is_compiled or issubclass(cls, Order) or hasattr(cls, "decompress"):
        return
    for method, thing in vars(cls).items():
        function = thing.fget if isinstance(thing, property) else getattr(thing, "__func__", thing)
        is_own = getattr(function, "__qualname__", "") == f"{cls.__qualname__}.{method}"
        is_new = not any(hasattr(base, method) for base in cls.__mro__[1:])
        is_used = not method.startswith("_") and f"{name}.{method}" not in FOR_THE_PACKAGE
        if is_own and is_used and (function.__doc__ or is_new):
            yield Documented(place, f"{name}.{method}")


def run_on_rank(_rank: int, _world: int, each: Documented) -> str:
    """Run an example on one of four ranks, as on two machines of two ranks each."""
    os.environ["BLUEFOG_NODES_PER_MACHINE"] = "2"
    import torch

    import bluefog_pg as bf

    torch.manual_seed(0)
    bf.set_topology()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # An example does what is recommended.
        return each.failures(bf=bf, torch=torch)
