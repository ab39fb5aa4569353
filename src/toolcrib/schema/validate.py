"""Validates what a model sent: strictly first, then repaired, then refused with every problem named.

A call that is valid strictly is never altered. Repair begins only when strict validation has refused, and ends either
with arguments and what was repaired in them, or with an error.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pydantic_core
from pydantic import BaseModel, TypeAdapter, ValidationError

from ..core import DefinitionError, Repair, ToolError
from ..machinery import LONG_CHARS, Check, Checked
from .errors import Path, Problem, error_details, locate, problems, refusal
from .from_python import Arguments, SchemaGenerator, clean_schema, first_line, type_name
from .json_text import (
    JSONError,
    JSONTooLong,
    most_names,
    parse_exact,
    parse_json,
    refuse_repeated_names,
    require_size,
    write_json,
)
from .plan import ABSENT, Plan, count_names, with_names_told
from .reading import Document, restored, with_exact_decimals
from .repair import Repaired, repair, with_integers
from .serialize import NotWritten, is_plain, written
from .view import SchemaView, kind, validator

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator as Validator

RawArguments = str | bytes | Mapping[str, Any] | None

DocumentReader = Callable[[RawArguments, Mapping[str, Any]], Document]
"""What a model sent, and the arguments that were made of it → its document."""


class RepairedArguments(dict[str, Any]):
    """Arguments by name, with the JSON values that they were made of after repair."""

    def __init__(self, arguments: Mapping[str, Any], document: Any) -> None:
        super().__init__(arguments)
        self.document = document


_TOO_LARGE_TO_REPAIR = "There is too much in them to repair it: send them exactly as the schema has them."


def arguments_check(tool: str, arguments: Arguments) -> Check:
    """Return the check of a function's *arguments*, validated by pydantic straight from JSON text."""
    plan = arguments.plan
    may_multiply = plan.may_multiply
    view = functools.cache(lambda: SchemaView(arguments.schema))

    def validating(validator: Any) -> Callable[..., Any]:
        return with_exact_decimals(tool, plan, with_names_told(plan, validator.validate_json))

    validate = validating(plan.validator)
    validate_long = functools.cache(lambda: validating(plan.quick_validator))  # few tools get long arguments
    always_read = not arguments.countable or SchemaView(arguments.schema).takes_anything
    models = plan.models()

    def accept(value: Any) -> dict[str, Any] | None:
        text = write_json(value) if plan.decimals else pydantic_core.to_json(value)
        if may_multiply and not plan.is_bounded(value):
            raise _unbounded(tool)
        if len(text) > LONG_CHARS and not view().is_valid(value):
            return None  # pydantic would make an error of each part
        values: dict[str, Any] = validate(text, strict=True)
        return values

    exact = functools.partial(restored, tool) if plan.decimals else None
    recover = Recovery(tool, arguments.schema, accept, exact=exact)

    def check(raw: RawArguments, repairs: bool, /) -> Checked:
        text = raw if type(raw) is str else to_json_text(tool, raw)
        try:
            if may_multiply and not plan.is_bounded(parse_json(text)):
                raise _unbounded(tool)
            if len(text) <= LONG_CHARS:
                values = validate(text, strict=True)
            else:
                require_size(text.encode(errors="surrogatepass"))
                values = validate_long()(text, strict=True)
            if always_read or (not plan.is_finite and ("NaN" in text or "Infinity" in text)):
                parse_json(text)  # perhaps a key appears twice, or a number is none, or too large
                return values, ()
            names = len(values)
            for name, is_list in models.items():
                if name in values:
                    names += count_names(values[name] if is_list else [values[name]])
            if names != text.count(":") and names != most_names(text):  # each name has its colon
                refuse_repeated_names(text.encode())
            return values, ()
        except ValidationError as error:
            return recover(text, repairs, error)
        except JSONError:
            return recover(text, repairs, None)

    return with_documents(check, document_reader(tool, plan, arguments.defaults, arguments.schema))


def json_schema_check(tool: str, schema: Mapping[str, Any]) -> Check:
    """Return the check of a bare JSON Schema: arguments stay the JSON values they are."""
    accepts: Validator | None = None

    def accept(value: Any) -> dict[str, Any] | None:
        nonlocal accepts
        if accepts is None:  # made with the first call: of many tools, few are called
            accepts = validator(schema, formats=True)
        return value if isinstance(value, dict) and accepts.is_valid(value) else None

    recover = Recovery(tool, schema, accept, formats=True)

    def check(raw: RawArguments, repairs: bool, /) -> Checked:
        text = raw if type(raw) is str else to_json_text(tool, raw)
        try:
            if (arguments := accept(parse_json(text))) is not None:
                return arguments, ()
        except JSONError:
            pass
        return recover(text, repairs, None)

    return with_documents(check, document_reader(tool, None, _defaults(schema), schema))


def model_check(
    tool: str, model: type[BaseModel], *, schema: Mapping[str, Any], arguments: Callable[[BaseModel], dict[str, Any]]
) -> Check:
    """Return the check of arguments that are one *model*; *arguments* converts it to what the work takes, by name.

    The model decides what it takes, as its `model_validate` does: text is taken for a number where the model takes it.
    Only a name that it does not have is refused, not passed over. *schema* is the JSON Schema that was shown. A mapping
    may hold values that JSON does not have, where the model takes them.
    """
    read_model = ModelReader(model)
    plan = read_model.plan

    def accept(value: Any) -> dict[str, Any]:
        return arguments(of_text(write_json(value) if plan.decimals else pydantic_core.to_json(value)))

    of_text = with_exact_decimals(tool, plan, with_names_told(plan, read_model.of_text))
    recover = Recovery(tool, schema, accept, exact=functools.partial(restored, tool) if plan.decimals else None)

    def check(raw: RawArguments, repairs: bool, /) -> Checked:
        try:
            if type(raw) is dict or isinstance(raw, Mapping):
                return arguments(read_model(raw)), ()
            text = to_json_text(tool, raw)
            parse_json(text)  # perhaps a key appears twice
            return arguments(of_text(text)), ()
        except ValidationError as error:
            return recover(to_json_text(tool, raw), repairs, error)
        except JSONError:
            return recover(to_json_text(tool, raw), repairs, None)

    read = document_reader(tool, plan, {}, schema)

    def read_document(raw: RawArguments, checked: Mapping[str, Any], /) -> Document:
        require_json_values(raw)
        value = next((value for value in checked.values() if type(value) is model), checked)
        return read(raw, checked, value)

    return with_documents(check, read_document)


class ModelReader:
    """Reads mappings, and JSON text, as one *model*; names that it does not have are refused.

    Raises pydantic's ValidationError.
    """

    __slots__ = ("_validator", "model", "plan")

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self.plan = Plan(model.__pydantic_core_schema__, model.__pydantic_validator__, finite=False)
        self._validator = self.plan.validator

    def __call__(self, raw: Mapping[str, Any]) -> BaseModel:
        model: BaseModel = self._validator.validate_python(raw)
        return model

    def of_text(self, text: str | bytes) -> BaseModel:
        """Return the model in JSON *text*."""
        model: BaseModel = self._validator.validate_json(text)
        return model


def document_reader(
    tool: str, plan: Plan | None, defaults: Mapping[str, Any], schema: Mapping[str, Any]
) -> Callable[..., Document]:
    """Return the reader of the documents that a check accepts, by *plan*.

    The value that the plan made may be given apart from the arguments.
    """
    view = functools.cache(lambda: SchemaView(schema))

    def read(raw: RawArguments, checked: Mapping[str, Any], value: Any = None, /) -> Document:
        text = "" if isinstance(checked, RepairedArguments) else to_json_text(tool, raw)
        sent = checked.document if isinstance(checked, RepairedArguments) else parse_exact(text)
        value = ABSENT if plan is None else checked if value is None else value
        return Document(sent, value, plan, defaults=defaults, view=view())

    return read


def with_documents(check: Check, read: DocumentReader | None) -> Check:
    """Return *check* with the reader of the documents that it accepts."""
    check.document = read  # type: ignore[attr-defined]
    return check


def document_of(check: Check, raw: RawArguments, checked: Mapping[str, Any]) -> Document:
    """Return the document of *raw*, of which *check* has made *checked*. Raises ToolError.

    Of a check without documents, it is the JSON as it was sent.
    """
    read: DocumentReader | None = getattr(check, "document", None)
    if read is not None:
        return read(raw, checked)
    require_json_values(raw)
    text = to_json_text("", raw)
    return Document(parse_exact(text if text.strip() else "{}"))


def require_json_values(raw: RawArguments) -> None:
    """Raise ToolError for Python values that reach a tool as they are: a document could not tell all of them apart."""
    if isinstance(raw, Mapping) and not is_plain(dict(raw)):
        raise ToolError(
            "A person or a rule decides on these arguments, and they have values that are not JSON. Pass JSON values.",
            "invalid_arguments",
        )


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: of["default"] for name, of in properties.items() if isinstance(of, Mapping) and "default" in of}


@dataclass(eq=False, repr=False)
class Recovery:
    """Repairs refused arguments, and where that is not enough, explains them.

    *accept* turns JSON values into arguments. It raises ValidationError, or returns None where only the *schema* can
    give the reasons. *exact* restores numbers in what was repaired of a text. *formats*: it judges the formats of the
    schema too.
    """

    tool: str
    schema: Mapping[str, Any]
    accept: Callable[[Any], dict[str, Any] | None]
    exact: Callable[[str, Repaired], Repaired] | None = None
    formats: bool = False

    @functools.cached_property
    def _view(self) -> SchemaView:
        return SchemaView(self.schema, formats=self.formats)

    def __call__(self, text: str, repairs: bool, error: ValidationError | None) -> Checked:
        """Return repaired arguments. Raises ToolError."""
        empty = repairs and not text.strip()
        try:
            value = {} if empty else parse_json(text)
        except JSONError as bad:
            raise unreadable(self.tool, bad) from None
        if not repairs:
            raise self._refusal(value, error)
        details = None if error is None else error_details(error, inputs=True)
        repairing = repair(value, text, self._view, refused=_refused_names(details))
        gave_up = repairing.gave_up or (error is not None and details is None)
        arguments = None
        if empty or repairing.repairs or error is None or len(text) > LONG_CHARS:
            repairing = repairing if self.exact is None else self.exact(text, repairing)
            arguments, error = self._accepted(repairing.value)
            details = None if error is None else error_details(error, inputs=True)
        if details is not None and (places := _integers_expected(details, repairing.value)):
            # The schema that the model was shown takes 1.0 for an integer; strict reading does not.
            whole = with_integers(repairing, places)
            if whole is not repairing:
                repairing = whole
                arguments, error = self._accepted(repairing.value)
        if arguments is None:
            # What could be repaired is not a problem.
            raise self._refusal(repairing.value, error, _TOO_LARGE_TO_REPAIR if gave_up else "")
        notes = ((Repair("", "empty", "object"),) if empty else ()) + repairing.repairs
        return RepairedArguments(arguments, repairing.value), notes

    def _accepted(self, value: Any) -> tuple[dict[str, Any] | None, ValidationError | None]:
        try:
            return self.accept(value), None
        except ValidationError as error:
            return None, error

    def _refusal(self, value: Any, error: ValidationError | None, remark: str = "") -> ToolError:
        mistakes = problems(self._view, value, error)
        unknown = Problem("", "other arguments", kind(value), "the arguments do not match its schema.")
        return refusal(self.tool, mistakes or [unknown], remark=remark)


def _refused_names(details: Sequence[Mapping[str, Any]] | None) -> frozenset[str] | None:
    """Return the arguments that pydantic refused, by name. None where it could be any."""
    places = [detail["loc"] for detail in details or ()]
    return frozenset(str(place[0]) for place in places) if places and all(places) else None


def _integers_expected(details: Sequence[Mapping[str, Any]], value: Any) -> list[Path]:
    """Return the places of those numbers in *value* that should be integers, by pydantic's *details*."""
    floats = (detail for detail in details if detail["type"] == "int_type" and isinstance(detail["input"], float))
    return [locate(detail["loc"], value)[0] for detail in floats]


def to_json_text(tool: str, raw: RawArguments) -> str:
    """Return *raw* as JSON text. Raises ToolError for what has no JSON form."""
    if raw is None:
        return "{}"
    try:
        if isinstance(raw, str):
            return str(raw)
        if isinstance(raw, bytes | bytearray | memoryview):
            return bytes(raw).decode()
        return pydantic_core.to_json(_plain(raw), fallback=_as_dict).decode()
    except UnicodeDecodeError as error:
        raise unreadable(tool, JSONError(f"byte {error.start + 1} of it is not UTF-8")) from None
    except NotWritten as error:
        raise _invalid(tool, f"{error}, so it cannot be passed as a Python value. Pass its fields in a dict.") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).removeprefix("Error serializing to JSON: ").removeprefix("ValueError: ")
        raise _invalid(tool, f"the arguments have no JSON form: {reason}. Send one JSON object.") from None


def _plain(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return raw if is_plain(raw) else written(raw)
    except RecursionError:  # pydantic distinguishes what contains itself from what is nested too deeply
        return raw


def _as_dict(value: Any) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise ValueError(f"a value of type {type(value).__name__} has none")


def unreadable(tool: str, error: JSONError) -> ToolError:
    """Return the error for text that cannot be parsed."""
    if isinstance(error, JSONTooLong):
        return ToolError(f"Tool '{tool}': {error}. Send less, or in several calls.", "too_large")
    return _invalid(tool, f"the arguments are not valid JSON: {error}. Send one JSON object.")


def _unbounded(tool: str) -> ToolError:
    reason = "the arguments are nested too deeply in parts that are one of several things: there are too many readings"
    return _invalid(tool, f"{reason}. Send flatter ones, or in several calls.")


def _invalid(tool: str, sentence: str) -> ToolError:
    return refusal(tool, [Problem("", "one JSON object", "text", sentence)])


# Answers of people


class Elicitation:
    """A type that pydantic can describe, or a JSON Schema: `schema` for the person who is asked.

    Raises DefinitionError for what is neither.
    """

    def __init__(self, expected: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(expected, Mapping):
            self.schema: dict[str, Any] = dict(expected)
        else:
            try:
                self._adapter = TypeAdapter(expected)
                self.schema = clean_schema(self._adapter.json_schema(schema_generator=SchemaGenerator))
            except Exception as error:
                raise DefinitionError(
                    f"A person cannot be asked for {type_name(expected)}: it has no JSON Schema ({first_line(error)}). "
                    "Ask for a type that pydantic can describe."
                ) from error
        try:
            validator(self.schema, formats=False)
        except Exception as error:
            raise DefinitionError(f"A person cannot be asked for this: it is not a JSON Schema ({error}).") from None

    def problems(self, value: Any) -> str | None:
        """Return what is wrong with *value* as an answer, without the value itself; None where nothing is."""
        try:
            data = pydantic_core.to_jsonable_python(value, by_alias=True)
            text = pydantic_core.to_json(data)
        except (ValueError, RecursionError):
            return f"It has no JSON form: it is a {type(value).__name__}."
        view = SchemaView(self.schema, formats=self._adapter is None)
        mistakes = []
        if self._adapter is not None:
            try:
                self._adapter.validate_json(text)
            except ValidationError as error:
                mistakes = problems(view, data, error)
        mistakes = mistakes or problems(view, data)
        message = " ".join(problem.sentence for problem in mistakes).replace("the arguments", "the answer")
        return message[:1].upper() + message[1:] or None

    def read(self, value: Any) -> Any:
        """Return *value*, which has no problems, as the type that was asked for."""
        text = pydantic_core.to_json(value, by_alias=True)
        return pydantic_core.from_json(text) if self._adapter is None else self._adapter.validate_json(text)
