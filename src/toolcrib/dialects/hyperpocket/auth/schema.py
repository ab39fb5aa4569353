"""`hyperpocket.auth.schema`: what a handler is asked with, and what it is answered."""

from pydantic import BaseModel, Field


class AuthenticateRequest(BaseModel, hide_input_in_errors=True):
    """What a grant is asked for with. A handler of OAuth 2.0 has `client_id` and `client_secret` beside it."""

    auth_scopes: list[str] | None = Field(
        default_factory=list[str], description="authentication scopes, for a handler that takes them"
    )


class AuthenticateResponse(BaseModel, hide_input_in_errors=True):
    """What is known of a grant when it is given."""
