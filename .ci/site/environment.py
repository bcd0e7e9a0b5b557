"""Write the table of environment variables in docs/environment.md again: make docs-environment."""

from __future__ import annotations

import re
from pathlib import Path

from bluefog_pg._core.variables import table

PAGE = Path(__file__).parents[2] / "docs" / "environment.md"
BLOCK = re.compile(r"(<!-- variables: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)


def written(text: str) -> str:
    """Return the page's text with the table made again."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{table()}\n\n{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
