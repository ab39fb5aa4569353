"""`hyperpocket.auth`: providers, handlers and contexts, over Toolcrib's catalogue and flows.

The modules of providers (`.slack.oauth2_handler`) are made on import. Needs the extra `auth` on first use.
"""

from typing import TYPE_CHECKING, Any

from . import _modules
from .context import AuthContext
from .handler import AuthHandlerInterface
from .provider import AuthProvider
from .schema import AuthenticateRequest, AuthenticateResponse

if TYPE_CHECKING:
    from ....core import Credential

    AUTH_CONTEXT_MAP: dict[str, type[AuthContext]]
    PREBUILT_AUTH_HANDLERS: list[type[AuthHandlerInterface]]

__all__ = [
    "AUTH_CONTEXT_MAP",
    "AuthContext",
    "AuthHandlerInterface",
    "AuthProvider",
    "AuthenticateRequest",
    "AuthenticateResponse",
    "PREBUILT_AUTH_HANDLERS",
    "context_of",
    "core_handler",
    "get_auth_provider",
    "is_scoped",
    "secrets_of",
]

_modules.install()


def get_auth_provider(auth_provider_name: str) -> AuthProvider:
    """The provider of that name, in any case. Raises ValueError where the catalogue has none."""
    return AuthProvider.get_auth_provider(auth_provider_name)


def core_handler(auth_provider: AuthProvider, auth_handler: str | None) -> str | None:
    """The handler of our catalogue that *auth_handler* is: `oauth2` for `slack-oauth2`.

    None for the default one, and for one that the catalogue does not have.
    """
    from ._catalogue import kind_of

    return None if auth_handler is None else kind_of(auth_provider.value, auth_handler)


def is_scoped(auth_provider: AuthProvider, auth_handler: str | None = None) -> bool | None:
    """Whether that handler, or else the default one, takes scopes. None where the catalogue does not have it."""
    from ._catalogue import is_scoped_kind, kind_of

    kind = kind_of(auth_provider.value, auth_handler)
    return None if kind is None else is_scoped_kind(auth_provider.value, kind)


def context_of(credential: "Credential", handler: str | None = None) -> AuthContext:
    """The context of what one of our brokers gave, by *handler*, of either name."""
    from .._providers import module_name
    from ._catalogue import KINDS, kind_of
    from ._models import models_of

    provider = module_name(credential.provider)
    given = {"basic": "basic", "keypair": "keypair"}.get(credential.kind, handler)
    kind: Any = given if given in KINDS else kind_of(provider, given) or kind_of(provider, None)
    models = models_of(provider, kind)
    values: Any = [credential.secret]
    if kind == "keypair":
        values = credential.secret.split(":", 1)
    context = models.grant(models.response.model_construct(**dict(zip(_members(kind, models), values, strict=True))))
    detail = dict(credential.detail) if kind == "oauth2" else context.detail
    return context.model_copy(update={"expires_at": credential.expires_at, "detail": detail})


def secrets_of(context: AuthContext) -> tuple[str, ...]:
    """The texts in *context* that nobody may see: the tokens, what tools are given of it, and a password in that."""
    from ._models import CatalogueContext, password_in

    given = [context.access_token, getattr(context, "refresh_token", None), *context.to_dict().values()]
    if isinstance(context, CatalogueContext) and context.kind == "basic":
        given.append(password_in(context.access_token))
    return tuple(dict.fromkeys(text for text in given if isinstance(text, str) and text))


def _members(kind: str, models: Any) -> list[str]:
    return list(models.response.model_fields) if kind == "keypair" else ["access_token"]


def __getattr__(name: str) -> Any:
    if name == "PREBUILT_AUTH_HANDLERS":
        from ._handlers import handler_classes

        return handler_classes()
    if name == "AUTH_CONTEXT_MAP":
        from ._catalogue import catalogue
        from ._models import models_of

        kinds = [(provider, kind) for provider, entry in catalogue().items() for kind in entry.handlers]
        contexts = [models_of(provider, kind).kind_context for provider, kind in kinds]
        return {context.__name__: context for context in contexts}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
