"""What BlueFog has and this package has not yet."""

from __future__ import annotations

import re

_WINDOWS = re.compile(r"\w*win_\w+|get_current_created_window_names")
_TRAINING = re.compile(
    r"Distributed\w*Optimizer|(broadcast|allreduce)_parameters|broadcast_optimizer_state|"
    r"optimizers|utility|optim|ddp"
)


def no_attribute(module: str, name: str) -> AttributeError:
    """What a module raises that lacks a name."""
    for names, what in ((_WINDOWS, "windows"), (_TRAINING, "optimizers and their helpers")):
        if names.fullmatch(name):
            return AttributeError(
                f"{module}.{name} is not there yet: {what} come with a later version; "
                "docs/bluefog.md tells what does without"
            )
    return AttributeError(f"module {module!r} has no attribute {name!r}")
