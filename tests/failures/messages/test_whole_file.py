"""The golden file has the sections that are tested, and no other."""

from __future__ import annotations

from pathlib import Path

from tests.support.messages import golden


def test_the_golden_file_is_whole() -> None:
    of_section = golden.read()
    assert list(of_section) == list(golden.SECTIONS)
    modules = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert modules == {Path(__file__).stem, *(f"test_{section}" for section in golden.SECTIONS)}
    texts = {text.split(": ", 1)[1] for lines in of_section.values() for text in lines}
    assert len(texts) >= 140
