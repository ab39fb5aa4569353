"""What a person is asked for, and whether an answer fits."""

from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from ..core import DefinitionError
from .errors import problems
from .from_python import SchemaGenerator, clean_schema, first_line, type_name
from .view import SchemaView, validator


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
        except (ValueError, RecursionError):
            return f"It has no JSON form: it is a {type(value).__name__}."
        view = SchemaView(self.schema, formats=self._adapter is None)
        mistakes = []
        if self._adapter is not None:
            try:
                self._adapter.validate_json(pydantic_core.to_json(data))
            except ValidationError as error:
                mistakes = problems(view, data, error)
        mistakes = mistakes or problems(view, data)
        message = " ".join(problem.sentence for problem in mistakes).replace("the arguments", "the answer")
        return message[:1].upper() + message[1:] or None

    def read(self, value: Any) -> Any:
        """Return *value*, which has no problems, as the type that was asked for."""
        text = pydantic_core.to_json(value, by_alias=True)
        return pydantic_core.from_json(text) if self._adapter is None else self._adapter.validate_json(text)
