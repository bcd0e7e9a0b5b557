"""This module reads numbers on the command lines of the tools."""

from __future__ import annotations

import argparse

_MOST = 1e6


def positive(text: str) -> float:
    """Return the number that is written, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST:
        raise argparse.ArgumentTypeError(f"give a number above 0 and up to {_MOST:,.0f}")
    return number
