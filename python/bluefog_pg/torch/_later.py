"""What BlueFog has and this package has not yet."""

from __future__ import annotations

import re

_TRAINING = re.compile(r"optim|ddp")


def no_attribute(module: str, name: str) -> AttributeError:
    """What a module raises that lacks a name."""
    if _TRAINING.fullmatch(name):
        return AttributeError(
            f"{module}.{name} is not there yet: what Asyncddp has of its own comes with a later "
            "version; docs/bluefog.md says how to do without"
        )
    return AttributeError(f"module {module!r} has no attribute {name!r}")
