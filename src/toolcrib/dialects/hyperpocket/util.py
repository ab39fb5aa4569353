"""`hyperpocket.util`: schemas and models of functions."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel

from ...core import DefinitionError
from ...schema import EMPTY, SchemaView, arguments_model, inlined, model_from_schema, read_docstring, read_signature
from .._modules import also_as


def flatten_json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return *schema* with what its references lead to in their place. What contains itself stays a reference."""
    return inlined(schema)


_NOTES = ("title", "description", "default")


def json_schema_to_model(schema: dict[str, Any], model_name: str = "DynamicModel") -> type[BaseModel]:
    """Return a model of *schema*, an object: its properties as fields, those of objects in it as models.

    Other properties are refused, unless the schema admits them. What is not required may be left out, or None. A part
    that no type of Python expresses, such as one that contains itself, takes what the schema allows.
    """
    return model_from_schema(_closed(SchemaView(inlined({"type": "object", **schema}))), model_name)


def _closed(view: SchemaView) -> Any:
    """Return the schema at *view* whose objects take no other properties, and None for one that may be left out."""
    if "/allOf/" in view.pointer:  # a part of an object has not all of its properties
        return view.schema
    schema: Any = view.rebuilt(_closed)
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties"), dict):
        return schema
    for name in properties.keys() - set(schema.get("required", ())):
        if isinstance(member := properties[name], dict):
            notes = {key: member[key] for key in _NOTES if key in member}
            properties[name] = {"anyOf": [member, {"type": "null"}], **notes}
    return {"type": "object", "additionalProperties": False, **schema}


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
    lines = [line for section in _SECTION.findall(text) for line in _LISTED.findall(section)]
    tagged = [*_TAGGED_AND_TYPED.findall(text), *_TAGGED.findall(text)]
    whole = _of(names, read_docstring(text).parameters.items())  # descriptions of several lines, too
    for descriptions in (_of(names, lines), _of(names, tagged), whole, _of(names, _LISTED.findall(text))):
        if descriptions:
            return {**descriptions, **whole}
    return {}


def _of(names: Iterable[str], descriptions: Iterable[tuple[str, str]]) -> dict[str, str]:
    texts = {name: text.strip() for name, text in descriptions if text.strip()}
    return {name: texts[name] for name in names if name in texts}


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def function_to_model(func: Callable[..., Any]) -> type[BaseModel]:
    """Return a model of the arguments of *func*, with its docstring and what that says of each.

    `*args` and `**kwargs` are not in it: they are the host's. Raises DefinitionError for a parameter without an
    annotation.
    """
    name = getattr(func, "__name__", None) or type(func).__name__
    label = f"Function '{name}'"
    of_host = set()
    for number, parameter in enumerate(read_signature(func, label=label).parameters):
        if parameter.kind in VARIADIC or (number == 0 and parameter.name in ("self", "cls")):
            of_host.add(parameter.name)
        elif parameter.annotation is EMPTY:
            raise DefinitionError(f"{label}: parameter '{parameter.name}' has no annotation. Annotate it.")
    model = arguments_model(
        func, name=f"{name.capitalize()}Model", without=of_host, docs=extract_param_docstring_mapping(func)
    )
    model.__doc__ = inspect.getdoc(func) or name
    return model


also_as(
    __name__,
    "extract_func_param_desc_from_docstring",
    "flatten_json_schema",
    "function_to_model",
    "json_schema_to_model",
)
