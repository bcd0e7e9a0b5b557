"""MkDocs calls these hooks: they bring pages from outside of docs/ into the site, and mend links.

Pages link to files of the repository, so that the links work where the repository is read. On the
site, a link leads to the page that the file has become. If a file is no page, the link leads to the
file in the repository, whose address is `extra.repository` in mkdocs.yml. As long as that setting
is empty, only the link's text is left.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = "docs"
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "benchmarks/results/*.png",
)
# The site has another first page than the repository.
RENAMED = {"README.md": f"{DOCS}/index.md"}
# Code comes first, since what looks like a link there is none.
LINK = re.compile(
    r"(?P<code>^[ ]*```.*?^[ ]*```$)"
    r"|(?P<image>!?)\[(?P<text>(?:[^\[\]`]|`[^`]*`)*)\]\((?P<target>[^)\s]+)\)"
    r"|(?P<span>`[^`\n]*`)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = in_repository(page.file.src_uri)

    def mended(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None or re.match(r"[a-z]+:|#", target):
            return link[0]
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), path))
        there = page_of(path, files)
        if there is not None:
            there = posixpath.relpath(there, posixpath.dirname(page.file.src_uri) or ".")
            text = titled(link["text"], ROOT / path)
            return f"{link['image']}[{text}]({there}{anchor and '#' + anchor})"
        repository = config.extra.get("repository")
        if repository and (ROOT / path).exists():
            return f"[{link['text']}]({repository.rstrip('/')}/{path})"
        # A link that leads nowhere stays as it is, and the strict build refuses it.
        return link["text"] if (ROOT / path).exists() else link[0]

    return LINK.sub(mended, markdown)


def titled(text: str, path: Path) -> str:
    """Return the page's title in place of a text that is the name of its file."""
    if text != path.name or path.suffix != ".md":
        return text
    title = re.search(r"^# (.+)$", path.read_text(), re.MULTILINE)
    return title[1] if title else text


def in_repository(src_uri: str) -> str:
    """Return the path in the repository of a file of the site."""
    is_inside = (ROOT / DOCS / src_uri).exists()
    return f"{DOCS}/{src_uri}" if is_inside else src_uri


def page_of(path: str, files: Files) -> str | None:
    """Return the file of the site that the repository's file or folder has become, if any has."""
    path = RENAMED.get(path, path)
    for name in (path, f"{path}/README.md", f"{path}/index.md"):
        uri = name.removeprefix(f"{DOCS}/")
        if files.get_file_from_path(uri) is not None and in_repository(uri) == name:
            return uri
    return None
