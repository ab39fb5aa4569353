"""What a person is asked for, and whether what came is that."""

from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic import TypeAdapter, ValidationError

from ..core import DefinitionError
from .bare import validator
from .derive import Quiet, clean, first_line, type_name
from .document import Document
from .explain import other_problems, problems


class Question:
    """A type that pydantic can describe, or a JSON Schema: `schema` for the person who is asked.

    Raises DefinitionError for what is neither.
    """

    def __init__(self, wanted: Any) -> None:
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(wanted, Mapping):
            self.schema: dict[str, Any] = dict(wanted)
        else:
            try:
                self._adapter = TypeAdapter(wanted)
                self.schema = clean(self._adapter.json_schema(schema_generator=Quiet))
            except Exception as error:
                raise DefinitionError(
                    f"A person cannot be asked for {type_name(wanted)}: it has no JSON Schema ({first_line(error)}). "
                    "Ask for a type that pydantic can describe."
                ) from error
        try:
            validator(self.schema, formats=False)
        except Exception as error:
            raise DefinitionError(f"A person cannot be asked for this: it is no JSON Schema ({error}).") from None

    def problems(self, value: Any) -> str | None:
        """What is wrong with *value* as an answer, in words, without the value itself. None where nothing is."""
        try:
            data = pydantic_core.to_jsonable_python(value, by_alias=True)
        except (ValueError, RecursionError):
            return f"It has no JSON form: it is a {type(value).__name__}."
        found = problems(Document(self.schema, formats=self._adapter is None), data)
        if self._adapter is not None:
            try:
                self._adapter.validate_json(pydantic_core.to_json(data))
            except ValidationError as error:
                details: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
                found += other_problems(details, data, found)
        said = " ".join(problem.sentence for problem in found).replace("the arguments", "the answer")
        return said[:1].upper() + said[1:] or None

    def read(self, value: Any) -> Any:
        """*value*, which has no problems, as what was asked for."""
        text = pydantic_core.to_json(value, by_alias=True)
        return pydantic_core.from_json(text) if self._adapter is None else self._adapter.validate_json(text)
