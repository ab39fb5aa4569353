"""`hyperpocket.builtin`: the tools that every Pocket has, for the sessions of the thread in which they are called."""

from .auth import get_auth_provider
from .pocket_auth import PocketAuth
from .tool import Tool, from_func


def get_builtin_tools(pocket_auth: PocketAuth) -> list[Tool]:
    """Return the tools that list and delete the sessions of *pocket_auth*, those of the calling thread alone."""

    async def __get_current_thread_session_state(thread_id: str = "default") -> list[dict[str, object]]:
        """
        List the sessions of this conversation: the provider, the state and the scopes of each, and no secrets.

        Call it only when the user asks for it.

        Args:
            thread_id (str): The ID of the chat thread. Leave it out for the current one.
        """
        return [
            {"provider": session["provider"], "state": session["state"].value, "scopes": sorted(session["scope"] or ())}
            for session in await pocket_auth.list_session_state(thread_id)
        ]

    def __delete_session(auth_provider_name: str, thread_id: str = "default", profile: str = "default") -> bool:
        """
        Delete the session of a provider, so that the user is asked to authenticate again.

        Returns whether there was one.

        Call it only when the user asks for it.

        Args:
            auth_provider_name (str): The name of the provider.
            thread_id (str): The ID of the chat thread. Leave it out for the current one.
            profile (str): As which of their profiles. Leave it out for the current one.
        """
        return pocket_auth.delete_session(get_auth_provider(auth_provider_name), thread_id, profile)

    return [from_func(__get_current_thread_session_state), from_func(__delete_session)]
