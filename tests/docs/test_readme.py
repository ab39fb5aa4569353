"""The figures in the README are those of benchmarks/results.md. (Its examples run in test_examples.py.)"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SECTIONS = {
    "one call of a tiny async tool": "Tiny async tool",
    "one call with 50 models as argument": "50 models as argument",
}
SUBJECTS = [["Toolcrib"], ["FastMCP server"], ["pydantic-ai toolset", "pydantic-ai manager"], ["LangChain"]]


def test_the_times_in_the_readme_are_those_measured() -> None:
    """Within a third: machines and runs differ."""
    readme = (ROOT / "README.md").read_text()
    for row, section in SECTIONS.items():
        (line,) = re.findall(rf"^\| {row} \| (.*) \|$", readme, re.M)
        shown = [[float(time) for time in re.findall(r"[\d.]+", cell)] for cell in line.split(" | ")]
        measured = [[measured_us(section, subject) for subject in subjects] for subjects in SUBJECTS]
        assert [len(times) for times in shown] == [len(times) for times in measured]
        for times, real in zip(shown, measured, strict=True):
            for time, exact in zip(times, real, strict=True):
                assert 0.75 < time / exact < 1.34, f"{row}: {time} µs in the README, and {exact} µs measured"


def measured_us(section: str, subject: str) -> float:
    text = (ROOT / "benchmarks" / "results.md").read_text()
    (table,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    (time,) = re.findall(rf"^\| {subject} \| ([\d.]+) µs \|", table, re.M)
    return float(time)
