"""Check the built site: each link leads somewhere, and a page loads nothing from the network.

    python3 .ci/site/check.py build/site

One line is printed for each fault, and the exit code is 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# A browser loads what these attributes name without being asked.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
IMPORTED = re.compile(r"""(?:url\(|@import\s)\s*["']?(https?:|//)[^)"']*""")


class Links(HTMLParser):
    """Collects the ids of a page, what it links to, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids.update(name for key in ("id", "name") if (name := given.get(key)))
        address = given.get(LOADED.get(tag, ""))
        if address and given.get("rel") not in {"next", "prev", "canonical"}:
            self.loaded.append(address)
        elif tag == "a" and (address := given.get("href")):
            self.links.append(address)


links = cache(Links)


def faults(site: Path) -> Iterator[str]:
    for page in sorted(site.rglob("*.html")):
        found = links(page)
        name = page.relative_to(site)
        for address in found.loaded:
            if urlsplit(address).netloc:
                yield f"{name}: it loads {address} from the network"
        for address in (*found.loaded, *found.links):
            if address != "#" and is_broken(page, address, site):
                yield f"{name}: {address} leads nowhere"
    for style in sorted(site.rglob("*.css")):
        for found in IMPORTED.finditer(style.read_text()):
            yield f"{style.relative_to(site)}: it loads {found[0]} from the network"


def is_broken(page: Path, address: str, site: Path) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return False
    if page == site / "404.html" and parts.path.startswith("/"):  # where the site's root may be
        return not (site / parts.path.lstrip("/")).exists()
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.is_relative_to(site.resolve()):
        return True
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target.suffix == ".html" and anchor not in links(target).ids


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    pages = len(list(site.rglob("*.html")))
    told = list(faults(site))
    for fault in told:
        print(fault)
    if not pages:
        print(f"{site} has no pages")
    elif not told:
        print(f"All links of {pages} pages lead somewhere, and nothing comes from the network.")
    return 1 if told or not pages else 0


if __name__ == "__main__":
    raise SystemExit(main())
