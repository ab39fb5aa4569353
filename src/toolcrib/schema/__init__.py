"""Python types ⇄ JSON Schema: derive one from the other, check what a model sent, repair it, explain it."""

from .bare import Described, admits, described, require_schema
from .check import Given, bare_check, typed_check
from .derive import Arguments
from .docstring import Doc, read_docstring
from .encode import describe_return, shapeless, write_any
from .explain import nearest, spoken
from .handles import members, takes_handles, with_handles
from .inline import inlined
from .model import ModelReader, model_check
from .plain import exact, plain, shown
from .question import Question
from .signature import EMPTY, Parameter, Signature, gives_awaitable, innermost, read_signature

__all__ = [
    "EMPTY",
    "Arguments",
    "Described",
    "Doc",
    "Given",
    "ModelReader",
    "Parameter",
    "Question",
    "Signature",
    "admits",
    "bare_check",
    "describe_return",
    "exact",
    "gives_awaitable",
    "described",
    "inlined",
    "innermost",
    "members",
    "model_check",
    "nearest",
    "plain",
    "read_docstring",
    "read_signature",
    "require_schema",
    "shapeless",
    "shown",
    "spoken",
    "takes_handles",
    "typed_check",
    "with_handles",
    "write_any",
]
