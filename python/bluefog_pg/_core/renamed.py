"""This module lets functions take the keywords that they had in earlier versions of BlueFog."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function take the keywords of earlier versions, too.

    Args:
        names: the function's current keywords, by the earlier ones.

    Raises:
        TypeError: a call gives one argument by both keywords.
    """

    def taking(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(
                        f"[bluefog] {function.__name__}: {old} is an earlier name of {new}; "
                        "give one of them"
                    )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return called

    return taking
