"""`hyperpocket.util.extract_func_param_desc_from_docstring`: what a docstring says of each parameter."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from ....schema import read_docstring

_TYPE = r"(?:\s*(?:\([^\n]*?\)|\[[^\n]*?\]|\{[^\n]*?\}|<[^\n]*?>))?"
_TAGGED = re.compile(rf"^\s*[@:](?:param|arg):?\s+(\w+){_TYPE}\s*:?\s*(.*)$", re.M)
_TAGGED_AND_TYPED = re.compile(r"^\s*:param\s+[^:\n]+?\s(\w+)\s*:\s*(.*)$", re.M)
_SECTION = re.compile(r"^[ \t]*(?:Args|Arguments|Parameters|Params):[ \t]*\n((?:[ \t]*\S.*\n?|[ \t]*\n)*)", re.M)
_LISTED = re.compile(rf"^[^\w\n]*(?:\d+[.)][ \t]*)?(\w+){_TYPE}\s*:[ \t]*(.*)$", re.M)


def extract_param_docstring_mapping(func: Callable[..., Any]) -> dict[str, str]:
    """Return what the docstring of *func* says of its parameters, by name.

    Of the first style that it has: `a (int): d` and `a: d` below `Args:`, also after `-` or a number; `:param a: d`,
    `@param a: d`, `:arg a d`; NumPy's; and else lines `a: d` and `a(int): d` anywhere.
    """
    text = inspect.getdoc(func)
    if not text:
        return {}
    names = list(inspect.signature(func).parameters)
    listed = [line for section in _SECTION.findall(text) for line in _LISTED.findall(section)]
    tagged = [*_TAGGED_AND_TYPED.findall(text), *_TAGGED.findall(text)]
    whole = _of(names, read_docstring(text).parameters.items())  # descriptions of several lines, too
    for found in (_of(names, listed), _of(names, tagged), whole, _of(names, _LISTED.findall(text))):
        if found:
            return {**found, **whole}
    return {}


def _of(names: Iterable[str], found: Iterable[tuple[str, str]]) -> dict[str, str]:
    texts = {name: text.strip() for name, text in found if text.strip()}
    return {name: texts[name] for name in names if name in texts}
