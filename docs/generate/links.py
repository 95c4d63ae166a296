"""Checks the links of a built site: ``python -m generate.links build/docs/html``.

Every link and every picture within the site exists, and so does the place on a page that a link
names. No page loads anything from elsewhere. Links to other sites are not followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself to show a page, by tag; a link to somewhere else is none of these.
_LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "object": "data"}
#: What a <link> is for, where a browser loads it.
_RELATIONS = {"stylesheet", "icon", "preload"}


class Page(HTMLParser):
    """The links of a page, what it loads, and the places on it that can be linked.

    - `links`, `loads`: the links as they are written there.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links, loads and names."""
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and _RELATIONS & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        if given.get(_LOADED.get(tag, "")):
            self.loads.append(given[_LOADED[tag]])


def broken(site: Path) -> Iterator[str]:
    """Yield a line for each link of a site that leads nowhere.

    - `site`: a folder with pages in ``.html``.
    """
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    for path, page in sorted(pages.items()):
        name = path.relative_to(site.resolve())
        for target in page.loads:
            if urlsplit(target).scheme not in ("", "data") or target.startswith("//"):
                yield f"{name}: loads {target} from elsewhere"
        for target in dict.fromkeys(page.links + page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.exists():
                yield f"{name}: {target} does not exist"
            elif there in pages and unquote(parts.fragment) not in pages[there].places:
                yield f"{name}: {target}: there is no such place on that page"


def main(folder: str) -> int:
    """Check a site, print what is broken, and return the exit code."""
    site = Path(folder)
    if not any(site.rglob("*.html")):
        print(f"there is no page in {folder}")
        return 2
    wrong = list(broken(site))
    print("\n".join(wrong) or "every link within the site leads somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
