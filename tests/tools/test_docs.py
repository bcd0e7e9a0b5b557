"""The documents' links lead somewhere, and the README's pictures show the results."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.environment import ROOT

PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "examples/**/*.md")
    for path in sorted(ROOT.glob(pattern))
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEXT = re.compile(r"<text[^>]*>([^<]+)</text>")
MOST_LINES = 120  # of the README


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not list(broken(page))


def test_all_variables_are_described() -> None:
    """The page has the variables that the sources read, but for those without an effect."""
    from bluefog_pg.torch._old_variables import _INSTEAD

    sources = [*(ROOT / "src").rglob("*.?pp"), *(ROOT / "python").rglob("*.py")]
    named = {
        name for path in sources for name in re.findall(r'"(BLUEFOG_[A-Z_]+)"', path.read_text())
    }
    page = (ROOT / "docs/environment.md").read_text()
    assert set(re.findall(r"^\| `(BLUEFOG_[A-Z_]+)", page, re.MULTILINE)) == named - _INSTEAD.keys()


def test_the_version_has_its_changes() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert f"\n## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_first_page_is_short() -> None:
    """Nobody sees comments, which say how the page's code is tested."""
    seen = re.sub(r"^<!--.*?-->\n", "", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    assert len(seen.splitlines()) <= MOST_LINES


def test_pictures_show_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.delitem(sys.modules, "pictures", raising=False)
    import pictures

    pictures.main(tmp_path)
    drawn = sorted(tmp_path.glob("*.svg"))
    assert drawn
    for new in drawn:
        committed = pictures.PICTURES / new.name
        assert TEXT.findall(committed.read_text()) == TEXT.findall(new.read_text()), (
            f"{committed} shows other figures than benchmarks/results; run make bench-tables"
        )
