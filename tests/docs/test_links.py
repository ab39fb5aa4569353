"""Links between the pages lead somewhere: to a file that is there, and to a heading that is in it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_LINK = re.compile(r"\[[^\]]*\]\((?P<to>[^)\s]+)\)")
_CODE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    text = _CODE.sub("", page.read_text())
    return {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", page.read_text()))
    return [to for to in _LINK.findall(text) if not re.match(r"[a-z]+:", to)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for to in links(page):
        path, _, anchor = to.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(to)
    assert broken == []


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / to.partition("#")[0]).resolve() for to in links(page) if not to.startswith("#")]
    docs = {page for page in (ROOT / "docs").rglob("*.md") if "why" not in page.parts}
    assert docs - reached == set()
