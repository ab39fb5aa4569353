"""Links between the pages lead somewhere: to a file that is there, and to a heading that is in it."""

import re
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

# The README is shown outside of the repository, too: its links to files are absolute.
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
_FILES = f"{REPOSITORY}/blob/main/"

_LINK = re.compile(r"\[[^\]]*\]\((?P<to>[^)\s]+)\)")
_CODE = re.compile(r"^( *)```.*?^\1```$", re.M | re.S)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them of its headings."""
    text = _CODE.sub("", page.read_text())
    return {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def written_links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", _CODE.sub("", page.read_text()))
    return _LINK.findall(text)


def links(page: Path) -> list[str]:
    """The links of a page to files of this repository, relative to the page; absolute ones are made so."""
    up = "../" * len(page.relative_to(ROOT).parents[:-1])
    local = [to.replace(_FILES, up) if to.startswith(_FILES) else to for to in written_links(page)]
    return [to for to in local if not re.match(r"[a-z]+:", to)]


def test_the_links_of_the_pages_lead_somewhere() -> None:
    broken = []
    for page, to in ((page, to) for page in PAGES for to in links(page)):
        path, _, anchor = to.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append((str(page.relative_to(ROOT)), to))
    assert broken == []


def test_the_links_of_the_readme_work_on_pypi() -> None:
    assert [to for to in written_links(ROOT / "README.md") if not re.match(r"https://|#", to)] == []


def test_no_link_leads_to_another_address_of_the_repository() -> None:
    for page in PAGES:
        inside = [to for to in written_links(page) if to.startswith(REPOSITORY)]
        assert [to for to in inside if not to.startswith(_FILES)] == [], page


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
