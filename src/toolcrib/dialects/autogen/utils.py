"""`autogen_core.utils`: JSON Schemas as pydantic models."""

from typing import Any

from pydantic import BaseModel

from ...schema import model_from_schema

__all__ = ["schema_to_pydantic_model"]


def schema_to_pydantic_model(schema: dict[str, Any], model_name: str = "GeneratedModel") -> type[BaseModel]:
    """Return a pydantic model of the objects that *schema* allows. Raises DefinitionError for an invalid schema."""
    return model_from_schema(schema, model_name)
