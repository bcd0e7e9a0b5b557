"""This module has Python find no bluefog_pg that scikit-build-core installed in editable mode."""

import sys

sys.meta_path = [
    finder
    for finder in sys.meta_path
    if "bluefog_pg" not in getattr(finder, "known_source_files", {})
]
