"""Warnings that point at the program."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).parents[1])


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line by which the program has come here, past lines of this package and torch."""
    import torch

    libraries = (_OURS, str(Path(torch.__file__).parent))
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)
