"""This package starts ranks from a notebook, where `%%px` runs a cell on all of them.

Example:
    >>> import bluefog_pg
    >>> with bluefog_pg.notebook.ranks(2) as view:  # doctest: +SKIP
    ...     view.apply_sync(lambda: 2)
    [2, 2]
"""

from bluefog_pg.notebook.session import ranks, start, stop

__all__ = ("ranks", "start", "stop")
