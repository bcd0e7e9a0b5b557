"""The list of what BlueFog and Asyncddp have names tests that exist."""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_row_is_held() -> None:
    with Path(__file__).with_name("parity.tsv").open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(rows) > 200
    for row in rows:
        for where in row["held by"].split("; "):
            path, _, function = where.partition("::")
            text = (ROOT / path).read_text()
            assert not function or f"def {function}(" in text, (row, where)
