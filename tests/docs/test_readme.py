"""The README is short, and the figures of the comparison are those of benchmarks/results.md."""

import re
from pathlib import Path

from toolcrib.workbench.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]

SECTIONS = {
    "one call of a tiny async tool": "Tiny async tool",
    "one call with 50 models as argument": "50 models as argument",
}
SUBJECTS = [["Toolcrib"], ["FastMCP server"], ["pydantic-ai toolset", "pydantic-ai manager"], ["LangChain"]]


def test_the_readme_is_read_in_a_minute() -> None:
    """Its examples run in test_examples.py."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_the_times_of_the_comparison_are_those_measured() -> None:
    """Within a third: machines and runs differ."""
    page = (ROOT / "docs" / "comparison.md").read_text()
    for row, section in SECTIONS.items():
        (line,) = re.findall(rf"^\| {row} \| (.*) \|$", page, re.M)
        shown = [[float(time) for time in re.findall(r"[\d.]+", cell)] for cell in line.split(" | ")]
        measured = [[measured_us(section, subject) for subject in subjects] for subjects in SUBJECTS]
        assert [len(times) for times in shown] == [len(times) for times in measured]
        for times, real in zip(shown, measured, strict=True):
            for time, exact in zip(times, real, strict=True):
                assert 0.75 < time / exact < 1.34, f"{row}: {time} µs on the page, and {exact} µs measured"


def measured_us(section: str, subject: str) -> float:
    text = (ROOT / "benchmarks" / "results.md").read_text()
    (table,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    (time,) = re.findall(rf"^\| {subject} \| ([\d.]+) µs \|", table, re.M)
    return float(time)


def test_the_gateway_of_the_readme_is_three_servers_and_a_rule(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```toml\n# gateway\.toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    settings = read_settings(file, {})
    assert (len(text.splitlines()), len(settings.sources), len(settings.rules)) == (5, 3, 1)
    assert settings.values.server.keys
