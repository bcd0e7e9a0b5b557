"""This module puts the pieces of a rank's lines together."""

from __future__ import annotations

import io
from typing import TextIO


class WholeLines(io.TextIOBase):
    """A WholeLines passes on one rank's output line by line.

    Torch reads the file into which a rank writes. If it reads there before the line's end has come,
    it passes on the line in pieces, each with the prefix. Other ranks' lines would come in between.
    """

    def __init__(self, out: TextIO, prefix: str) -> None:
        self._out, self._prefix, self._begun = out, prefix, ""

    def write(self, text: str) -> int:
        line = self._begun + (text.removeprefix(self._prefix) if self._begun else text)
        self._begun = "" if line.endswith("\n") else line
        if not self._begun:
            self._out.write(line)
        return len(text)

    def finish(self) -> None:
        """Pass on the last line, which may have no end."""
        if self._begun:
            self._out.write(f"{self._begun}\n")
            self._begun = ""
