"""Griffe, which reads the package for the reference, calls this extension for each docstring.

The docstrings have sections such as `Args:` and `Example:`. Their lines are freer than what
griffe's own parsers take, so this module writes them as Markdown. A public name in backquotes
becomes a link to its place in the reference.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

from griffe import Alias, Class, Docstring, Extension, Module, Object

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
COMPILED = "bluefog_pg._C."
# Lines that are indented more than the title belong to a section.
SECTION = re.compile(
    r"^(Args|Returns|Raises|Yields|Example|Examples|Attributes):[ ]*\n((?:[ \t]+.*\n|\n)+)",
    re.MULTILINE,
)
# An item of a section has names, a colon and a text.
ITEM = re.compile(r"(?P<names>[A-Za-z_*][\w.*]*(?:, [A-Za-z_*][\w.*]*)*): (?P<text>.+)", re.DOTALL)
TITLES = {"Args": "Arguments", "Example": "Example", "Examples": "Example"}
NAME = re.compile(r"(?<![\w\[`.])`([A-Za-z_][\w.]*)(\(\))?`(?![\]`])")
PAGE = re.compile(r"docs/(\w+)\.md")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class Docstrings(Extension):
    """Rewrites the docstrings of the package as Markdown."""

    def __init__(self) -> None:
        pages = sorted(REFERENCE.glob("*.md"))
        self._listed = [name for page in pages for name in DIRECTIVE.findall(page.read_text())]
        self._is_written: set[int] = set()

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Griffe calls this for each module, class, function and attribute that it has loaded."""
        if obj.path.startswith(COMPILED) and obj.docstring is None:
            if text := of_compiled(obj.path):
                obj.docstring = Docstring(text, parent=obj)
        if isinstance(obj, Class) and {"__new__", "__init__"} <= obj.members.keys():
            obj["__init__"].parameters = obj["__new__"].parameters  # The page shows __init__.
        if obj.docstring is not None and id(obj.docstring) not in self._is_written:
            self._is_written.add(id(obj.docstring))
            text = as_markdown(inspect.cleandoc(obj.docstring.value))
            obj.docstring.value = self._with_links(text, obj)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Mend what griffe does not find.

        A function that is named as its module, `align`, would be taken for the module. Griffe also
        misses names of bluefog_pg.torch among several `import *`.
        """
        for name, each in list(pkg.members.items()):
            if isinstance(each, Alias) and each.target_path.endswith(f".neighbors.{name}"):
                inner = pkg["neighbors"].members.get(name)
                if isinstance(inner, Module):
                    pkg.set_member(name, Alias(name, f"{inner.path}.{name}", parent=pkg))
        facade = pkg.members.get("torch")
        if not isinstance(facade, Module):
            return
        parts = [each for each in facade.members.values() if isinstance(each, Module)]
        for path in self._listed:
            name = path.removeprefix(f"{facade.path}.")
            homes = [part for part in parts if name in part.members]
            if path.startswith(facade.path) and name not in facade.members and homes:
                facade.set_member(name, Alias(name, f"{homes[0].path}.{name}", parent=facade))

    def _with_links(self, text: str, obj: Object) -> str:
        *parts, last = FENCE.split(text)
        own = obj.path.rpartition(".")[2]

        def linked(found: re.Match[str]) -> str:
            name = found[1]
            if name in {own, obj.path} or (path := self._path_of(name, obj)) is None:
                return found[0]
            return f"[{found[0]}][{path}]"

        return "".join(
            part if part.startswith("```") else PAGE.sub(on_site, NAME.sub(linked, part))
            for part in (*parts, last)
        )

    def _path_of(self, name: str, obj: Object) -> str | None:
        """Return what a name in a docstring means: first among its neighbors, then anywhere."""
        if name in self._listed:
            return name
        is_facade = obj.path.startswith("bluefog_pg.torch")
        fits = [path for path in self._listed if path.endswith(f".{name}")]
        fits.sort(
            key=lambda path: (path.startswith("bluefog_pg.torch") != is_facade, path.count("."))
        )
        return fits[0] if fits else None


def on_site(found: re.Match[str]) -> str:
    """Return a link from a page of the reference to the page that a docstring names."""
    return f"[{found[0]}](../{found[1]}.html)"


def of_compiled(path: str) -> str:
    """Return the docstring that the compiled module has, and its stub has not."""
    import bluefog_pg

    thing: Any = bluefog_pg._C
    for name in path.removeprefix(COMPILED).split("."):
        thing = getattr(thing, name, None)
    own = inspect.isclass(thing) and thing.__doc__
    return inspect.cleandoc(own) if own else ""


def as_markdown(text: str) -> str:
    """Return the docstring with its sections as lists, and its examples as blocks of code."""
    return SECTION.sub(lambda found: section(found[1], found[2]), text + "\n")


def section(title: str, body: str) -> str:
    body = textwrap.dedent(body).strip("\n")
    if title.startswith("Example"):
        text = f"```pycon\n{body}\n```"
    elif title == "Returns":
        text = body
    else:
        text = "\n".join(item(each) for each in items(body))
    return f"\n**{TITLES.get(title, title)}**\n\n{text}\n\n"


def items(body: str) -> list[str]:
    """Return the lines of a section, each with the indented lines that go on from it."""
    parts = re.split(r"\n(?=\S)", body)
    return [re.sub(r"\s*\n\s*", " ", part) for part in parts if part.strip()]


def item(text: str) -> str:
    found = ITEM.fullmatch(text)
    if not found:
        return f"- {text}"
    names = ", ".join(f"`{name}`" for name in found["names"].split(", "))
    return f"- {names}: {found['text']}"
