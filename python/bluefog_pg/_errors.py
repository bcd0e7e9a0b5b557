"""Errors that are raised in Python alone; the compiled module has the others."""

from __future__ import annotations


class ArgumentError(ValueError, AssertionError):
    """A bad argument of a kind that BlueFog told by an assertion: programs may catch either."""
