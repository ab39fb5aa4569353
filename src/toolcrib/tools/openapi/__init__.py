"""OpenAPI documents as sources: one tool an operation. Needs the extra `toolcrib[openapi]`."""

from ...machinery import raise_missing_extra

try:
    import httpx2 as httpx2
except ModuleNotFoundError as missing:
    raise_missing_extra(missing, "OpenAPI documents need", "openapi")

from .documents import is_openapi
from .source import OpenAPISource, has_document, openapi_source

__all__ = ["OpenAPISource", "has_document", "is_openapi", "openapi_source"]
