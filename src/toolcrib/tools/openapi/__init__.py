"""OpenAPI documents as sources: one tool an operation. Needs the extra `toolcrib[openapi]`."""

from .documents import is_openapi
from .source import OpenAPISource, has_document, openapi_source

__all__ = ["OpenAPISource", "has_document", "is_openapi", "openapi_source"]
