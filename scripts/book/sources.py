#!/usr/bin/env python3
"""The pages of the book, from docs/SUMMARY.md, and a check of what was built from them.

    sources.py copy INTO    copies the pages and their pictures, each to the place that it has in the repository
    sources.py check HTML   fails where a link or a picture of the built book leads nowhere

A link to a page of the book stays. Any other leads to the file in the repository.
"""

import html.parser
import os
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent.parent
SUMMARY = ROOT / "docs" / "SUMMARY.md"
# `[text](target)`, `src="target"` and `srcset="target"`
LINK = re.compile(r'(\]\(|\b(?:src|srcset)=")([^)"\s]+)')
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def repository() -> str:
    manifest = (ROOT / "Cargo.toml").read_text()
    (address,) = re.findall(r'^repository *= *"(.*)"', manifest, re.MULTILINE)
    return address


def in_repository(page: Path, target: str) -> str:
    """The path of a relative link's target, from the root of the repository."""
    return os.path.normpath(page.parent.relative_to(ROOT) / target)


def copy(into: Path) -> None:
    text = SUMMARY.read_text()
    pages = {in_repository(SUMMARY, target) for target in re.findall(r"\]\(([^)]+)\)", text)}
    pictures: set[str] = set()
    of_docs = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
    if forgotten := of_docs - pages - {"docs/SUMMARY.md"}:
        sys.exit(f"book: docs/SUMMARY.md does not list {', '.join(sorted(forgotten))}")

    def led(page: Path, target: str) -> str:
        if "://" in target or target.startswith(("#", "mailto:")):
            return target
        path, mark, anchor = target.partition("#")
        path = in_repository(page, path)
        if f"{path}/README.md" in pages:
            path += "/README.md"
        if path in pages or path.endswith(".svg"):
            if path not in pages:
                pictures.add(path)
            # mdBook makes an index of each README.
            path = re.sub(r"(^|/)README\.md$", r"\1index.md", path)
            return os.path.relpath(path, page.parent.relative_to(ROOT)) + mark + anchor
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{repository()}/{kind}/main/{path}{mark}{anchor}"

    def written(page: Path, text: str) -> str:
        parts = FENCE.split(text)
        for n in range(0, len(parts), 2):
            parts[n] = LINK.sub(lambda link: link[1] + led(page, link[2]), parts[n])
        return "".join(parts)

    for name in sorted(pages):
        page = ROOT / name
        copied = into / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(written(page, page.read_text()))
    for name in sorted(pictures):
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, into / name)
    of_root = re.sub(r"\]\(([^)]+)\)", lambda link: f"]({in_repository(SUMMARY, link[1])})", text)
    (into / "SUMMARY.md").write_text(of_root)


class Page(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (name == "name" and tag == "a"):
                self.names.add(value or "")
            if (tag, name) in {("a", "href"), ("img", "src"), ("source", "srcset")}:
                self.links.append(value or "")


def check(built: Path) -> None:
    pages = {path: Page(path.read_text()) for path in built.rglob("*.html")}
    seen, bad = 0, []
    for path, page in pages.items():
        # A copy of all pages in one, which has the links of none; and the page for a wrong address.
        if path.name in {"print.html", "404.html", "toc.html"}:
            continue
        for link in page.links:
            if "://" in link or link.startswith("mailto:"):
                continue
            target, _, anchor = link.partition("#")
            to = (path.parent / unquote(target)).resolve() if target else path
            known = pages.get(to)
            if not to.exists() or (anchor and known and unquote(anchor) not in known.names):
                bad.append(f"{path.relative_to(built)}: {link}")
            seen += 1
    if bad or seen < 100:
        sys.exit("\n".join(["book: these lead nowhere:", *bad]))
    print(f"book: {len(pages)} pages, {seen} links that lead somewhere")


if __name__ == "__main__":
    what, folder = sys.argv[1:]
    {"copy": copy, "check": check}[what](Path(folder).resolve())
