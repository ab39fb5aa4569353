"""`hyperpocket.auth`: providers, handlers and contexts, over Toolcrib's catalogue and flows.

The modules of providers (`.slack.oauth2_handler`) are made on import. Needs the extra `auth` on first use.
"""

import sys
from typing import TYPE_CHECKING, Any

from . import handler
from ._handlers import (
    OAuth2Handler,
    core_handler,
    environment_of,
    handler_class,
    handlers_of_catalogue,
    is_scoped,
    models_of,
    secrets_of,
)
from .handler import AuthContext, AuthenticateRequest, AuthenticateResponse, AuthHandlerInterface
from .provider import AuthProvider

if TYPE_CHECKING:
    AUTH_CONTEXT_MAP: dict[str, type[AuthContext]]
    PREBUILT_AUTH_HANDLERS: list[type[AuthHandlerInterface]]

__all__ = [
    "AUTH_CONTEXT_MAP",
    "AuthContext",
    "AuthHandlerInterface",
    "AuthProvider",
    "AuthenticateRequest",
    "AuthenticateResponse",
    "OAuth2Handler",
    "PREBUILT_AUTH_HANDLERS",
    "core_handler",
    "environment_of",
    "get_auth_provider",
    "is_scoped",
    "secrets_of",
]

sys.modules[f"{__name__}.context"] = sys.modules[f"{__name__}.schema"] = handler
get_auth_provider = AuthProvider.get_auth_provider


def __getattr__(name: str) -> Any:
    if name == "PREBUILT_AUTH_HANDLERS":
        return [handler_class(provider, kind) for provider, kind in handlers_of_catalogue()]
    if name == "AUTH_CONTEXT_MAP":
        contexts = [models_of(provider, kind).context for provider, kind in handlers_of_catalogue()]
        return {context.__name__: context for context in contexts}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
