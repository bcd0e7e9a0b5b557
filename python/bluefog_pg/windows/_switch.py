"""Whether window operations carry the associated p: of the whole process, as in BlueFog."""

from __future__ import annotations


class Switch:
    is_on = False


def turn_on_win_ops_with_associated_p() -> None:
    """From now on `win_put` and `win_accumulate` carry p, and `win_update` averages it."""
    Switch.is_on = True


def turn_off_win_ops_with_associated_p() -> None:
    """End what `turn_on_win_ops_with_associated_p` began: p stays as it is."""
    Switch.is_on = False
