"""This module has the functions of `bluefog.common.util` that programs use."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from bluefog_pg.torch.basics import check_extension

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_extension", "env", "is_running_from_ipython"]


@contextlib.contextmanager
def env(**variables: str | None) -> Iterator[None]:
    """Set environment variables for a block, and give them back what they had.

    BlueFog has this function.

    Args:
        variables: names and values; None leaves a variable as it is.

    Example:
        >>> import os
        >>> from bluefog_pg.common.util import env
        >>> with env(COLOR="red", SHAPE=None):
        ...     os.environ["COLOR"]
        'red'
        >>> "COLOR" in os.environ
        False
    """
    given = {name: value for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_running_from_ipython() -> bool:
    """Return whether the program runs in IPython or a notebook. BlueFog has this function.

    Example:
        >>> from bluefog_pg.common.util import is_running_from_ipython
        >>> is_running_from_ipython()
        False
    """
    import builtins

    return hasattr(builtins, "__IPYTHON__")
