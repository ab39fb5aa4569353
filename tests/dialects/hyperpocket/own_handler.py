"""A handler and a context as programs write them, and tools that need them."""

from typing import Any

from toolcrib.dialects.hyperpocket import Pocket, PocketAuth
from toolcrib.dialects.hyperpocket.auth import AuthProvider
from toolcrib.dialects.hyperpocket.auth.context import AuthContext
from toolcrib.dialects.hyperpocket.auth.handler import AuthHandlerInterface
from toolcrib.dialects.hyperpocket.auth.schema import AuthenticateRequest
from toolcrib.dialects.hyperpocket.futures import FutureStore
from toolcrib.dialects.hyperpocket.tool import function_tool

BEGINNING = "User needs to authenticate using the following URL: https://login.example/?state="


class OwnContext(AuthContext):
    def to_dict(self) -> dict[str, str]:
        return {"OWN_TOKEN": self.access_token}

    def to_profiled_dict(self, profile: str) -> dict[str, str]:
        return {f"{profile.upper()}_OWN_TOKEN": self.access_token}


class OwnHandler(AuthHandlerInterface):
    name = "own"
    description = "A handler of one's own."
    scoped = True

    @staticmethod
    def provider() -> AuthProvider:
        return AuthProvider.GITHUB

    @staticmethod
    def provider_default() -> bool:
        return True

    def make_request(self, auth_scopes: list[str] | None = None, **kwargs: Any) -> AuthenticateRequest:
        return AuthenticateRequest(auth_scopes=auth_scopes)

    def prepare(
        self, auth_req: AuthenticateRequest, thread_id: str, profile: str, future_uid: str, *args: Any, **kwargs: Any
    ) -> str:
        FutureStore.create_future(future_uid)
        return f"{BEGINNING}{future_uid}&scopes={'+'.join(sorted(auth_req.auth_scopes or ()))}"

    async def authenticate(
        self, auth_req: AuthenticateRequest, future_uid: str, *args: Any, **kwargs: Any
    ) -> OwnContext:
        begun = FutureStore.get_future(future_uid)
        assert begun is not None
        return OwnContext(access_token=f"token-for-{await begun.future}", description="", expires_at=None)

    async def refresh(
        self, auth_req: AuthenticateRequest, context: AuthContext, *args: Any, **kwargs: Any
    ) -> AuthContext:
        return context


def grant(text: str, code: str = "code") -> None:
    """Do what somebody does who follows the URL in *text*."""
    assert text.startswith(BEGINNING)
    FutureStore.resolve_future(text.removeprefix(BEGINNING).partition("&")[0], code)


seen: list[dict[str, Any]] = []


@function_tool(auth_provider=AuthProvider.GITHUB, scopes=["repo"])
def who(**kwargs: Any) -> str:
    """Who calls."""
    seen.append(kwargs)
    return f"{kwargs['thread_id']}/{kwargs['profile']}"


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def pocket(*tools: Any, **options: Any) -> Pocket:
    seen.clear()
    return Pocket([who, add, *tools], auth=PocketAuth(handlers=[OwnHandler]), **options)
