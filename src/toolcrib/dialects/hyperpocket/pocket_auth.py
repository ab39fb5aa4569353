"""`hyperpocket.pocket_auth`: who has granted what, in which thread and profile, and what is done about it."""

import asyncio
import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...core import SetupError, ToolError
from .auth import AuthContext, AuthHandlerInterface, AuthProvider
from .auth._handlers import OAuth2Handler
from .auth.schema import AuthenticateRequest
from .config import config
from .futures import FutureData, FutureStore
from .futures.futurestore import RefusedError
from .session import open_storage
from .session.interface import BaseSessionValue, SessionStorageInterface

if TYPE_CHECKING:
    from .tool import Tool, ToolAuth

_Where = tuple[AuthProvider, str, str]


class AuthState(enum.Enum):
    """What a session needs before it can be used."""

    SKIP_AUTH = "skip_auth"
    DO_AUTH = "do_auth"
    DO_REFRESH = "do_refresh"
    NO_SESSION = "no_session"
    PENDING_RESOLVE = "pending_resolve"
    RESOLVED = "resolved"


class RefreshError(RuntimeError):
    """A grant could not be refreshed, and its session has ended."""


class PocketAuth:
    """The grants of a program's users, by provider, thread and profile, and the handlers by which they come.

    *handlers* are classes (or instances) beside those of the catalogue, which are left out with
    *use_prebuilt_handlers* False. *session_storage* is where sessions are kept; by default, what the settings say.
    """

    handlers: dict[str, AuthHandlerInterface]
    session_storage: SessionStorageInterface[Any, Any]

    def __init__(
        self,
        handlers: Sequence[type[AuthHandlerInterface] | AuthHandlerInterface] | None = None,
        session_storage: SessionStorageInterface[Any, Any] | None = None,
        use_prebuilt_handlers: bool | None = None,
    ) -> None:
        from .auth import PREBUILT_AUTH_HANDLERS

        if use_prebuilt_handlers is None:
            use_prebuilt_handlers = config().auth.use_prebuilt_auth
        # Given ones first: where several are the default of a provider, theirs is.
        made = [given() if isinstance(given, type) else given for given in handlers or ()]
        prebuilt = [handler() for handler in PREBUILT_AUTH_HANDLERS] if use_prebuilt_handlers else []
        self.handlers = {handler.name: handler for handler in made}
        self.handlers |= {handler.name: handler for handler in prebuilt if handler.name not in self.handlers}
        self.session_storage = open_storage(config().session) if session_storage is None else session_storage
        self._tasks: set[asyncio.Task[AuthContext]] = set()

    async def invoke(
        self,
        tool_or_auth: "Tool | ToolAuth",
        thread_id: str = "default",
        profile: str = "default",
        wait: bool = True,
    ) -> AuthContext | str | None:
        """The context that a tool needs, of this thread and profile; None for one that needs none.

        Where nothing is granted yet, this waits for a person, with a server for the callback; with *wait* False, it
        gives the text with the URL. Raises ToolError where nothing was granted: the next call asks again.
        """
        auth: Any = getattr(tool_or_auth, "auth", tool_or_auth)
        if auth is None or auth.auth_provider is None:
            return None
        which = (auth.auth_handler, auth.auth_provider)
        try:
            auth_req = self.make_request(auth.scopes, *which)
        except SetupError as error:
            raise ToolError(str(error), "unauthorized") from None
        while True:
            try:
                text = await self.prepare(auth_req, *which, thread_id, profile)
                if text is not None:
                    if not wait:
                        return text
                    _start_callback_server(text)
                context = await self.authenticate_async(auth_req, *which, thread_id, profile)
            except RefreshError:
                continue  # its session has ended: a person is asked again
            except RefusedError as error:
                raise ToolError(f"{error} Call the tool again to be asked.", "unauthorized") from None
            except Exception as error:
                raise _as_tool_error(error) from None
            if await self.check(auth_req, *which, thread_id, profile) is not AuthState.DO_AUTH:
                return context
            # What was granted in the meantime was for fewer scopes.

    def make_request(
        self,
        auth_scopes: list[str] | None = None,
        auth_handler_name: str | None = None,
        auth_provider: AuthProvider | None = None,
        **kwargs: Any,
    ) -> AuthenticateRequest:
        """What a grant is asked for with, as its handler makes it."""
        return self.find_handler_instance(auth_handler_name, auth_provider).make_request(auth_scopes, **kwargs)

    async def check(
        self,
        auth_req: AuthenticateRequest,
        auth_handler_name: str | None = None,
        auth_provider: AuthProvider | None = None,
        thread_id: str = "default",
        profile: str = "default",
        *args: Any,
        **kwargs: Any,
    ) -> AuthState:
        """What the session needs before it can be used for *auth_req*."""
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        session = self.session_storage.get(handler.provider(), thread_id, profile)
        return await self.get_session_state(session, auth_req)

    @staticmethod
    async def get_session_state(
        session: BaseSessionValue | None, auth_req: AuthenticateRequest | None = None
    ) -> AuthState:
        """What *session* needs before it can be used for *auth_req*, or at all."""
        if session is None or _is_over(session):
            return AuthState.NO_SESSION
        if session.auth_resolve_uid:
            begun = FutureStore.get_future(session.auth_resolve_uid)
            return AuthState.RESOLVED if begun is not None and begun.future.done() else AuthState.PENDING_RESOLVE
        if auth_req is not None and not session.is_auth_applicable(session.auth_provider_name, auth_req):
            return AuthState.DO_AUTH
        return AuthState.DO_REFRESH if session.is_near_expires() else AuthState.SKIP_AUTH

    async def prepare(
        self,
        auth_req: AuthenticateRequest,
        auth_handler_name: str | None = None,
        auth_provider: AuthProvider | None = None,
        thread_id: str = "default",
        profile: str = "default",
        **kwargs: Any,
    ) -> str | None:
        """The text with the URL where a person grants it; None where there is nothing to ask for.

        Asked again while that is pending, it is the same; for more scopes it has another URL, under the same uid.
        """
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        provider = handler.provider()
        if isinstance(handler, OAuth2Handler):
            await handler.discover(auth_req)
        async with self.session_storage.alone(provider, thread_id, profile):
            session = self.session_storage.get(provider, thread_id, profile)
            state = await self.get_session_state(session, auth_req)
            if state in (AuthState.SKIP_AUTH, AuthState.DO_REFRESH, AuthState.RESOLVED):
                return None
            if state is AuthState.NO_SESSION and session is not None:
                self.delete_session(provider, thread_id, profile)
                session = None
            known = () if session is None else session.auth_scopes or ()
            scopes = sorted({*handler.recommended_scopes(), *(auth_req.auth_scopes or ()), *known})
            uid = (session.auth_resolve_uid if session is not None else None) or token_urlsafe(32)
            asked = auth_req.model_copy(update={"auth_scopes": scopes})
            text = handler.prepare(asked, thread_id, profile, uid, **kwargs)
            self.session_storage.set(
                auth_provider=provider,
                thread_id=thread_id,
                profile=profile,
                auth_scopes=scopes,
                auth_resolve_uid=uid,
                auth_context=None,
                is_auth_scope_universal=handler.scoped,
            )
            return text

    async def authenticate_async(
        self,
        auth_req: AuthenticateRequest,
        auth_handler_name: str | None = None,
        auth_provider: AuthProvider | None = None,
        thread_id: str = "default",
        profile: str = "default",
        **kwargs: Any,
    ) -> AuthContext:
        """The context of a session that was prepared: waits while it is pending, and refreshes it near its end.

        Raises RuntimeError where it was not prepared, or cannot be refreshed; TimeoutError where nobody grants it in
        time; and what its handler raises. Then the session has ended, and the next `prepare` asks again.
        """
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        where = (handler.provider(), thread_id, profile)
        await self._wait(where)
        # It goes on when the caller gives up: a code or a refresh token may be spent by then.
        task = asyncio.ensure_future(self._complete(handler, auth_req, where, kwargs))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def get_auth_context(
        self, auth_provider: AuthProvider, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> AuthContext | None:
        """The context of an active session. None where there is no session, or while it is pending."""
        session = self.session_storage.get(auth_provider, thread_id, profile, **kwargs)
        return None if session is None else session.auth_context

    async def list_session_state(
        self, thread_id: str, auth_provider: AuthProvider | None = None
    ) -> list[dict[str, Any]]:
        """The provider, scopes and state of each session of exactly this thread."""
        sessions = self.session_storage.get_by_thread_id(thread_id=thread_id, auth_provider=auth_provider)
        return [
            {
                "provider": session.auth_provider_name,
                "scope": session.auth_scopes,
                "state": await self.get_session_state(session, None),
            }
            for session in sessions
        ]

    def delete_session(self, auth_provider: AuthProvider, thread_id: str = "default", profile: str = "default") -> bool:
        """Whether there was a session, which is gone now, and with it the URL that it may have waited for."""
        session = self.session_storage.get(auth_provider, thread_id, profile)
        if session is not None and session.auth_resolve_uid:
            with suppress(ValueError):
                FutureStore.reject_future(session.auth_resolve_uid, f"The session of {auth_provider.name} was deleted.")
            FutureStore.delete_future(session.auth_resolve_uid)
        return self.session_storage.delete(auth_provider, thread_id, profile)

    def find_handler_instance(
        self, name: str | None = None, auth_provider: AuthProvider | None = None
    ) -> AuthHandlerInterface:
        """The handler *name*, or the default one of *auth_provider*. Raises KeyError, or ValueError without either."""
        if name:
            return self.handlers[name]
        if auth_provider is not None:
            for handler in self.handlers.values():
                if handler.provider() == auth_provider and handler.provider_default():
                    return handler
        raise ValueError("No handler found")

    # One session

    async def _wait(self, where: _Where) -> None:
        """Wait until the grant of a pending session is done. Raises TimeoutError, and the session has ended."""
        session = self.session_storage.get(*where)
        begun = None if session is None else FutureStore.get_future(session.auth_resolve_uid or "")
        if session is None or begun is None:
            return
        try:
            async with asyncio.timeout(_left_s(begun)):
                with suppress(RefusedError):  # whoever completes it is told
                    await begun.future
        except TimeoutError:
            self._end(session, where)
            raise TimeoutError(f"Nobody granted access to {where[0].name} in time.") from None

    async def _complete(
        self, handler: AuthHandlerInterface, auth_req: AuthenticateRequest, where: _Where, options: Mapping[str, Any]
    ) -> AuthContext:
        async with self.session_storage.alone(*where):
            session = self.session_storage.get(*where)
            state = await self.get_session_state(session, auth_req)
            if session is None or state in (AuthState.NO_SESSION, AuthState.DO_AUTH):
                raise RuntimeError(f"The session of {where[0].name} is in the state '{state.value}': prepare it first.")
            if state is AuthState.SKIP_AUTH and session.auth_context is not None:
                found: AuthContext = session.auth_context
                return found
            if state is not AuthState.PENDING_RESOLVE:
                return await self._grant(handler, auth_req, where, session, options)
        # Without a future, its handler waits by itself: nobody else has to wait for that.
        return await self._grant(handler, auth_req, where, session, options)

    async def _grant(
        self,
        handler: AuthHandlerInterface,
        auth_req: AuthenticateRequest,
        where: _Where,
        session: BaseSessionValue,
        options: Mapping[str, Any],
    ) -> AuthContext:
        """A new context of *session*, stored. Where that fails, the session has ended."""
        uid = session.auth_resolve_uid
        try:
            async with asyncio.timeout(config().auth_timeout_s):
                if uid:
                    context = await handler.authenticate(auth_req=auth_req, future_uid=uid, **options)
                else:
                    assert session.auth_context is not None
                    context = await handler.refresh(auth_req=auth_req, context=session.auth_context, **options)
        except Exception as error:
            self._end(session, where)
            if uid:
                raise
            raise RefreshError("Failed to refresh the token. Please re-authenticate.") from error
        current = self.session_storage.get(*where)
        if current is None or current.auth_resolve_uid != uid:
            raise RefusedError(f"The session of {where[0].name} was deleted.")
        self.session_storage.set(
            auth_provider=where[0],
            thread_id=where[1],
            profile=where[2],
            auth_scopes=sorted(current.auth_scopes or ()),
            auth_resolve_uid=None,
            auth_context=context,
            is_auth_scope_universal=session.scoped,
        )
        FutureStore.delete_future(uid)
        return context

    def _end(self, session: BaseSessionValue, where: _Where) -> None:
        """Delete *session*, unless another one is in its place by now."""
        if self.session_storage.get(*where) == session:
            self.delete_session(*where)
        FutureStore.delete_future(session.auth_resolve_uid)

    def _forget(self, task: "asyncio.Task[AuthContext]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # where nobody waits for it any more, it is no news


def _start_callback_server(text: str) -> None:
    if needs_callback(text):
        from .server import start_callback_server

        start_callback_server()


def needs_callback(text: str) -> bool:
    """Whether the URL in *text* leads to the callback server, now or when something is granted."""
    return config().public_base_url in unquote(text)


def _is_over(session: BaseSessionValue) -> bool:
    """Whether nobody has granted what *session* waits for in time."""
    begun = FutureStore.get_future(session.auth_resolve_uid or "")
    return begun is not None and not begun.future.done() and _left_s(begun) <= 0


def _left_s(begun: FutureData) -> float:
    return max(0.0, begun.created_at + config().auth_timeout_s - monotonic())


def _as_tool_error(error: Exception) -> Exception:
    """*error* of a handler for a model: a provider's refusal as that; what is somebody else's stays as it is."""
    from ...auth import FlowError

    if not isinstance(error, FlowError):
        return error
    code = "unavailable" if error.error in ("unreachable", "malformed") else "unauthorized"
    return ToolError(f"{error} Call the tool again to be asked.", code)
