"""`hyperpocket.pocket_auth`: asks for the grants of each thread and profile, completes and refreshes them."""

import asyncio
import enum
from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_urlsafe
from time import monotonic
from typing import TYPE_CHECKING, Any

from ...core import SetupError, ToolError
from .auth import AuthContext, AuthHandlerInterface, AuthProvider, OAuth2Handler
from .auth.handler import AuthenticateRequest
from .config import config
from .futures import FutureData, FutureStore
from .futures.futurestore import RefusedError
from .server import needs_callback, start_callback_server
from .session import BaseSessionValue, SessionStorageInterface, open_storage

if TYPE_CHECKING:
    from .tool import Tool, ToolAuth

_OTHER_WAY = "Another way to log in there was asked for since."
_Place = tuple[AuthProvider, str, str]


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
        # The program's come first: theirs is the default where several are the default of a provider.
        own = [handler() if isinstance(handler, type) else handler for handler in handlers or ()]
        self.handlers = {handler.name: handler for handler in own}
        for kind in PREBUILT_AUTH_HANDLERS if use_prebuilt_handlers else ():
            self.handlers.setdefault(kind.name, kind())
        self.session_storage = open_storage(config().session) if session_storage is None else session_storage
        self._tasks: set[asyncio.Task[AuthContext]] = set()

    async def invoke(
        self,
        tool_or_auth: "Tool | ToolAuth",
        thread_id: str = "default",
        profile: str = "default",
        wait: bool = True,
        **kwargs: Any,
    ) -> AuthContext | str | None:
        """Return the context that a tool needs, of this thread and profile; None for one that needs none.

        While nothing is granted, wait for a person, with a server for the callback; with *wait* False, return the text
        with the URL. Raises ToolError where nothing was granted: the next call asks again.
        """
        auth: Any = getattr(tool_or_auth, "auth", tool_or_auth)
        if auth is None or auth.auth_provider is None:
            return None
        handler = (auth.auth_handler, auth.auth_provider)
        try:
            auth_req = self.make_request(auth.scopes, *handler)
        except SetupError as error:
            raise ToolError(str(error), "unauthorized") from None
        about = (auth_req, *handler, thread_id, profile)
        while True:
            try:
                text = await self.prepare(*about, **kwargs)
                if text is not None:
                    if not wait:
                        return text
                    if needs_callback(text):
                        start_callback_server()
                context = await self.authenticate_async(*about, **kwargs)
            except RefreshError:
                continue  # its session has ended: a person is asked again
            except Exception as error:
                raise _as_tool_error(error) from None
            if await self.check(*about) is not AuthState.DO_AUTH:
                return context
            # A grant for fewer scopes came in the meantime, so the missing ones are asked for.

    def make_request(
        self,
        auth_scopes: list[str] | None = None,
        auth_handler_name: str | None = None,
        auth_provider: AuthProvider | None = None,
        **kwargs: Any,
    ) -> AuthenticateRequest:
        """Return the request for a grant, as its handler makes it."""
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
        """Return what the session needs before it can be used for *auth_req*."""
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        session = self.session_storage.get(handler.provider(), thread_id, profile)
        return await self.get_session_state(session, auth_req)

    @staticmethod
    async def get_session_state(
        session: BaseSessionValue | None, auth_req: AuthenticateRequest | None = None
    ) -> AuthState:
        """Return what *session* needs before it can be used for *auth_req*, or at all."""
        if session is None:
            return AuthState.NO_SESSION
        if session.auth_resolve_uid:
            pending = FutureStore.get_future(session.auth_resolve_uid)
            if pending is None:
                return AuthState.PENDING_RESOLVE
            if pending.future.done():
                return AuthState.RESOLVED
            return AuthState.PENDING_RESOLVE if _left_s(pending) > 0 else AuthState.NO_SESSION
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
        """Return the text with the URL where a person grants it; None where there is nothing to ask for.

        The text is the same while the grant is pending; for more scopes it has another URL, under the same uid.
        """
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        place = (handler.provider(), thread_id, profile)
        if isinstance(handler, OAuth2Handler):
            await handler.discover(auth_req)
        async with self.session_storage.alone(*place):
            session = self.session_storage.get(*place)
            state = await self.get_session_state(session, auth_req)
            if state in (AuthState.SKIP_AUTH, AuthState.DO_REFRESH, AuthState.RESOLVED):
                return None
            if session is not None and not _can_continue(session, state, handler):
                self.delete_session(*place)
                session = None
            old_scopes, uid = ((), None) if session is None else (session.auth_scopes or (), session.auth_resolve_uid)
            uid = uid or token_urlsafe(32)
            scopes = sorted({*handler.recommended_scopes(), *(auth_req.auth_scopes or ()), *old_scopes})
            request = auth_req.model_copy(update={"auth_scopes": scopes})
            text = handler.prepare(request, thread_id, profile, uid, **kwargs)
            if (asked := FutureStore.get_future(uid)) is not None:
                asked.data.setdefault("handler", handler.name)
            self.session_storage.set(*place, scopes, uid, None, handler.scoped)
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
        """Return the context of a session that was prepared: wait while it is pending, refresh it near its end.

        Raises RuntimeError where it was not prepared, or cannot be refreshed; TimeoutError where no person grants it in
        time; and what its handler raises. Then the session has ended, and the next `prepare` asks again.
        """
        handler = self.find_handler_instance(auth_handler_name, auth_provider)
        place = (handler.provider(), thread_id, profile)
        await self._wait(place)
        # It goes on when the caller gives up: a code or a refresh token may be spent by then.
        task = asyncio.ensure_future(self._complete(handler, auth_req, place, kwargs))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    def get_auth_context(
        self, auth_provider: AuthProvider, thread_id: str = "default", profile: str = "default", **kwargs: Any
    ) -> AuthContext | None:
        """Return the context of an active session. None where there is no session, or while it is pending."""
        session = self.session_storage.get(auth_provider, thread_id, profile, **kwargs)
        return None if session is None else session.auth_context

    async def list_session_state(
        self, thread_id: str, auth_provider: AuthProvider | None = None
    ) -> list[dict[str, Any]]:
        """Return the provider, scopes and state of each session of exactly this thread."""
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
        """Delete a session, and the URL that it may have waited for. False where there was none."""
        session = self.session_storage.get(auth_provider, thread_id, profile)
        if session is not None and session.auth_resolve_uid:
            with suppress(ValueError):
                FutureStore.reject_future(session.auth_resolve_uid, f"The session of {auth_provider.name} was deleted.")
            FutureStore.delete_future(session.auth_resolve_uid)
        return self.session_storage.delete(auth_provider, thread_id, profile)

    def find_handler_instance(
        self, name: str | None = None, auth_provider: AuthProvider | None = None
    ) -> AuthHandlerInterface:
        """Return the handler *name*, or the default one of *auth_provider*. Raises KeyError or ValueError."""
        if name:
            return self.handlers[name]
        if auth_provider is not None:
            for handler in self.handlers.values():
                if handler.provider() == auth_provider and handler.provider_default():
                    return handler
        raise ValueError("No handler found")

    # One session

    async def _wait(self, place: _Place) -> None:
        """Wait until the grant of a pending session is done. Raises TimeoutError, and the session has ended."""
        session = self.session_storage.get(*place)
        pending = None if session is None else FutureStore.get_future(session.auth_resolve_uid or "")
        if session is None or pending is None:
            return
        try:
            async with asyncio.timeout(_left_s(pending)):
                with suppress(RefusedError):  # `_complete` raises it
                    await pending.future
        except TimeoutError:
            self._end(session, place)
            raise TimeoutError(f"Access to {place[0].name} was not granted in time.") from None

    async def _complete(
        self, handler: AuthHandlerInterface, auth_req: AuthenticateRequest, place: _Place, options: Mapping[str, Any]
    ) -> AuthContext:
        async with self.session_storage.alone(*place):
            session = self.session_storage.get(*place)
            state = await self.get_session_state(session, auth_req)
            if session is None or state in (AuthState.NO_SESSION, AuthState.DO_AUTH):
                raise RuntimeError(f"The session of {place[0].name} is in the state '{state.value}': prepare it first.")
            if state is AuthState.SKIP_AUTH and session.auth_context is not None:
                context: AuthContext = session.auth_context
                return context
            if state is not AuthState.PENDING_RESOLVE:
                return await self._grant(handler, auth_req, place, session, options)
        # The handler waits for a future of its own, so it must not hold the session meanwhile.
        return await self._grant(handler, auth_req, place, session, options)

    async def _grant(
        self,
        handler: AuthHandlerInterface,
        auth_req: AuthenticateRequest,
        place: _Place,
        session: BaseSessionValue,
        options: Mapping[str, Any],
    ) -> AuthContext:
        """Return a new context of *session*, stored. Where that fails, the session has ended."""
        uid = session.auth_resolve_uid
        if not _is_asked_by(handler, uid):
            raise RefusedError(_OTHER_WAY)
        try:
            async with asyncio.timeout(config().auth_timeout_s):
                if uid:
                    context = await handler.authenticate(auth_req=auth_req, future_uid=uid, **options)
                else:
                    assert session.auth_context is not None
                    context = await handler.refresh(auth_req=auth_req, context=session.auth_context, **options)
        except Exception as error:
            self._end(session, place)
            if uid:
                raise
            raise RefreshError("Failed to refresh the token. Please re-authenticate.") from error
        current = self.session_storage.get(*place)
        if current is None or current.auth_resolve_uid != uid:
            raise RefusedError(f"The session of {place[0].name} was deleted.")
        self.session_storage.set(*place, sorted(current.auth_scopes or ()), None, context, session.scoped)
        FutureStore.delete_future(uid)
        return context

    def _end(self, session: BaseSessionValue, place: _Place) -> None:
        """Delete *session*, unless another one is in its place by now."""
        if self.session_storage.get(*place) == session:
            self.delete_session(*place)
        FutureStore.delete_future(session.auth_resolve_uid)


def _can_continue(session: BaseSessionValue, state: AuthState, handler: AuthHandlerInterface) -> bool:
    """Return whether *session* can go on with *handler*. A grant that another one has asked for is refused."""
    if state is AuthState.NO_SESSION:
        return False
    if _is_asked_by(handler, session.auth_resolve_uid):
        return True
    # What was asked for first cannot be answered for this handler: a code is no token.
    FutureStore.reject_future(session.auth_resolve_uid or "", _OTHER_WAY)
    return False


def _is_asked_by(handler: AuthHandlerInterface, uid: str | None) -> bool:
    """Return whether the grant *uid* is one that *handler* has asked for, or was asked for by none that is known."""
    asked = FutureStore.get_future(uid or "")
    return asked is None or asked.data.get("handler", handler.name) == handler.name


def _left_s(pending: FutureData) -> float:
    return max(0.0, pending.created_at + config().auth_timeout_s - monotonic())


def _as_tool_error(error: Exception) -> Exception:
    """Return a refusal, of a person or a provider, as an error for a model, and any other *error* as it is."""
    from ...auth import FlowError

    if not isinstance(error, FlowError | RefusedError):
        return error
    is_down = isinstance(error, FlowError) and error.error in ("unreachable", "malformed")
    return ToolError(f"{error} Call the tool again to be asked.", "unavailable" if is_down else "unauthorized")
