"""What an issuer's document says of its endpoints (OpenID Connect Discovery 1.0, RFC 8414). Nothing is fetched here."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .catalogue import OAuth2

_URLS = {
    "token_url": "token_endpoint",
    "authorize_url": "authorization_endpoint",
    "device_url": "device_authorization_endpoint",
    "revoke_url": "revocation_endpoint",
}
_METHODS = {"client_secret_basic": "basic", "client_secret_post": "post", "none": "none"}


def document_urls(issuer: str) -> list[str]:
    """Return where the document of *issuer* may be, in the order in which it is looked for."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    origin = f"{parts.scheme}://{parts.netloc}"
    return [
        f"{origin}{path}/.well-known/openid-configuration",
        f"{origin}/.well-known/oauth-authorization-server{path}",
    ]


def with_document(table: OAuth2, document: Mapping[str, Any], issuer: str) -> OAuth2:
    """Return *table* with what *document* adds; what is written in the table stays.

    Raises ValueError for the document of another issuer (RFC 8414, 3.3), and for one that is not as it should be.
    """
    if document.get("issuer") != issuer:
        raise ValueError("it belongs to another issuer")
    endpoints: dict[str, Any] = {name: document[key] for name, key in _URLS.items() if document.get(key) is not None}
    # Without the member, it is HTTP Basic (RFC 8414, 2).
    methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    supported = [ours for name, ours in _METHODS.items() if isinstance(methods, list) and name in methods]
    if supported:
        endpoints["client_auth"] = supported[0]
    endpoints["iss_required"] = document.get("authorization_response_iss_parameter_supported") is True
    if "token_url" not in endpoints:
        raise ValueError("it has no token endpoint")
    return OAuth2.model_validate({**endpoints, **table.model_dump(exclude_unset=True), "issuer": issuer})
