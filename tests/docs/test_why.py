"""The pages of docs/why are in their index, and the files that they name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHY = ROOT / "docs" / "why"
PAGES = sorted(page for page in WHY.glob("*.md") if page.name != "README.md")


def test_every_decision_is_in_the_index_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (WHY / "README.md").read_text())
    assert sorted(listed) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_files_that_a_decision_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", page.read_text())
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src/toolcrib"))] == []
