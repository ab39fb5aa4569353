"""The site of `make docs`: each page is in its navigation, and it is built without a warning, for itself."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from toolcrib import __version__

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_once() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = [page for page in DOCS.rglob("*.md") if page.parent.name != "why" or page.name == "README.md"]
    pages = ["index.md", *(str(page.relative_to(DOCS)) for page in listed)]
    assert sorted(re.findall(r"[\w/-]+\.md", navigation)) == sorted(pages)


@pytest.mark.full
def test_the_site_is_built_and_nothing_in_it_comes_from_elsewhere() -> None:
    built = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stdout + built.stderr
    site = ROOT / "build" / "docs"
    assert __version__ in [entry["version"] for entry in json.loads((site / "versions.json").read_text())]
    assert f"url={__version__}/" in (site / "index.html").read_text()
    pages = {page: page.read_text() for page in (site / __version__).rglob("*.html")}
    loaded = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=["']?(?:https?:)?//(?!toolcrib)[^>]*>""")
    assert {str(page): links for page, text in pages.items() if (links := loaded.findall(text))} == {}
    assert 'id="toolcrib.Workbench.call"' in pages[site / __version__ / "reference" / "toolcrib" / "index.html"]
