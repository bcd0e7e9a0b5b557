"""This module has the states of a coordinator."""

from __future__ import annotations

import enum


class State(enum.Enum):
    """A State says what a coordinator has set up.

    The coordinator's group may be destroyed in each state: see `Coordinator.is_orphan`.
    """

    # No bucket is in use. The parameters must be packed before anything averages them.
    APART = enum.auto()
    # The parameters lie in buckets, which are not connected with those of other ranks.
    PACKED = enum.auto()
    # Buckets are connected and hooks tell of passes. An average may be under way.
    ACTIVE = enum.auto()
    # The optimizer is a plain one for good. Windows may be left until `close()`.
    CLOSED = enum.auto()
