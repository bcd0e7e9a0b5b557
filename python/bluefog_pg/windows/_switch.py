"""This module has the switch of the associated p, one for the whole process as in BlueFog."""

from __future__ import annotations


class Switch:
    """This class has the state of the switch."""

    is_on = False


def turn_on_win_ops_with_associated_p() -> None:
    """Let `win_put` and `win_accumulate` carry p from now on, and `win_update` average it.

    p is a float64 for each rank and slot that goes with the data, for push-sum (docs/semantics.md).
    The switch is the process's own; all ranks should set it alike.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.turn_on_win_ops_with_associated_p()
        >>> x = torch.full((2,), float(bf.rank()))
        >>> bf.win_create(x, "sums", zero_init=True)
        True
        >>> shares = dict.fromkeys(bf.out_neighbor_ranks(), 1 / 3)
        >>> for _ in range(30):
        ...     _ = bf.win_accumulate(x, "sums", self_weight=1 / 3, dst_weights=shares)
        ...     _ = bf.win_fence("sums")
        ...     _ = bf.win_update_then_collect("sums")
        >>> mean = x / bf.win_associated_p("sums")
        >>> [round(number, 3) for number in mean.tolist()]
        [1.5, 1.5]
        >>> bf.turn_off_win_ops_with_associated_p()
        >>> bf.win_free("sums")
        True
    """
    Switch.is_on = True


def turn_off_win_ops_with_associated_p() -> None:
    """End what `turn_on_win_ops_with_associated_p` began: p stays as it is.

    Example:
        >>> import bluefog_pg.torch as bf
        >>> bf.turn_off_win_ops_with_associated_p()
        >>> bf.win_create(torch.ones(2), "w")
        True
        >>> bf.win_put(torch.ones(2), "w", self_weight=0.5)
        True
        >>> bf.win_associated_p("w")
        1.0
        >>> bf.win_free("w")
        True
    """
    Switch.is_on = False
