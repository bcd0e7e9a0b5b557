"""Errors that are raised in Python alone; the compiled module has the others."""

from __future__ import annotations

NAMED = "[bluefog] rank"  # how a text begins that names a rank and an operation


class ArgumentError(ValueError, AssertionError):
    """A bad argument of a kind that BlueFog told by an assertion: programs may catch either."""


class NotRunning(ValueError, RuntimeError):
    """There is no default process group: not yet, or not any more."""
