"""This module defines the errors that only Python raises; the compiled module has the others."""

from __future__ import annotations

NAMED = "[bluefog] rank"  # the beginning of each text that names a rank and an operation


class ArgumentError(ValueError, AssertionError):
    """An argument is bad, and BlueFog told so by an assertion: programs may catch either type.

    Thread safety: nothing changes the error after it is raised. It owns its text alone.

    Example:
        >>> from bluefog_pg import ArgumentError
        >>> from bluefog_pg.topology_util import isPowerOf
        >>> try:
        ...     isPowerOf(4, base=1)
        ... except AssertionError as error:
        ...     print(type(error) is ArgumentError, isinstance(error, ValueError), error)
        True True base must be an integer of at least 2, got 1
    """


class NotRunning(ValueError, RuntimeError):
    """There is no default process group: not yet, or not any more.

    Thread safety: nothing changes the error after it is raised. It owns its text alone.

    Example:
        >>> import bluefog_pg
        >>> try:
        ...     bluefog_pg.neighbor_allreduce([1.0])
        ... except RuntimeError as error:
        ...     print(type(error).__name__, isinstance(error, ValueError))
        NotRunning True
    """
