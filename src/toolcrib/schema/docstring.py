"""Reads docstrings: the description, and a sentence for each parameter. Google, NumPy and Sphinx styles."""

import re
from dataclasses import dataclass, field
from typing import Literal

Style = Literal["google", "numpy", "sphinx"]

_SIGNS: tuple[tuple[Style, re.Pattern[str]], ...] = (
    ("sphinx", re.compile(r"^\s*:(param|parameter|arg|argument|return|returns|raises|rtype|type)\b[^:\n]*:", re.M)),
    ("numpy", re.compile(r"^\s*(Parameters|Returns|Raises|Yields|Other Parameters|Examples)\s*\n\s*-{3,}\s*$", re.M)),
    ("google", re.compile(r"^\s*(Args|Arguments|Parameters|Params|Returns|Raises|Yields|Keyword Args):\s*$", re.M)),
)


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring: its *description* without sections, the descriptions of its *parameters* by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def read_docstring(text: str | None) -> Doc:
    """Read the description and the parameters' descriptions in *text*, indented as `inspect.getdoc` leaves it.

    What is not understood is part of the description.
    """
    if not text:
        return Doc()
    style: Style | None = next((style for style, sign in _SIGNS if sign.search(text)), None)
    if style is None:
        return Doc(text.strip())

    # Imported only where there are sections to parse: it takes longer than the rest of the package.
    import griffe

    description: list[str] = []
    parameters: dict[str, str] = {}
    # The line break: griffe removes the indentation of all lines but the first, and it is removed already.
    for section in griffe.Docstring("\n" + text, lineno=1).parse(style, warnings=False):
        if isinstance(section, griffe.DocstringSectionText):
            description.append(section.value.strip())
        elif isinstance(section, griffe.DocstringSectionParameters | griffe.DocstringSectionOtherParameters):
            for parameter in section.value:
                parameters[parameter.name.lstrip("*")] = " ".join(parameter.description.split())
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            # "Note:" and its like do not describe the signature, so they stay in the description.
            description.append(f"{section.title}: {section.value.contents.strip()}")
    return Doc("\n\n".join(part for part in description if part), parameters)
