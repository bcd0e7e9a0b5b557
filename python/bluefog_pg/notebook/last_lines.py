"""This module keeps the end of what engines write, which errors show."""

from __future__ import annotations

import io
from collections import deque

_COUNT = 40


class LastLines(io.TextIOBase):
    """A LastLines is a file that keeps the last lines that are written into it."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_COUNT)

    def write(self, text: str) -> int:
        self._lines.extend(text.splitlines())
        return len(text)

    def quoted(self) -> str:
        """Return a text that shows the lines at the end of an error."""
        return "\nThe engines wrote:\n" + "\n".join(self._lines) if self._lines else ""
