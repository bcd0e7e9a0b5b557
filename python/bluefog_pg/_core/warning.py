"""This module warns in such a way that the warning points at a line of the program."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import FrameType

_OURS = str(Path(__file__).parents[1])


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line that is neither of this package nor of torch."""
    import torch

    libraries = (_OURS, torch.__path__[0])
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)
