"""OpenAPI documents as sources: one tool an operation. Needs the extra `toolcrib[openapi]`."""

from .source import OpenAPISource, has_document, openapi_source
from .text import is_openapi

__all__ = ["OpenAPISource", "has_document", "is_openapi", "openapi_source"]
