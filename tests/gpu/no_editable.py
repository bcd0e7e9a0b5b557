"""Has Python find no bluefog_pg that is installed in editable mode (by scikit-build-core)."""

import sys

sys.meta_path = [
    finder
    for finder in sys.meta_path
    if "bluefog_pg" not in getattr(finder, "known_source_files", {})
]
