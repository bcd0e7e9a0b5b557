"""The states of a coordinator."""

from __future__ import annotations

import enum


class State(enum.Enum):
    """What a coordinator has set up. Its group may be destroyed in each state: see `is_orphan`."""

    # No bucket is in use: the parameters are packed before anything averages them.
    APART = enum.auto()
    # The parameters lie in buckets, which nothing connects with those of other ranks.
    PACKED = enum.auto()
    # Buckets are connected and hooks tell of passes, so that an average may be under way.
    ACTIVE = enum.auto()
    # The optimizer is a plain one for good, and windows may be left until `close()`.
    CLOSED = enum.auto()
