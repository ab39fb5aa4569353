"""`hyperpocket.auth.context`: what a tool is given of a grant."""

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field


class AuthContext(BaseModel, ABC, hide_input_in_errors=True):
    """A grant. Its secrets are in no repr."""

    access_token: str = Field(description="user's access token", repr=False)
    description: str = Field(description="description of this authentication context")
    expires_at: datetime | None = Field(description="expiration datetime")
    detail: Any | None = Field(default=None, description="detailed information", repr=False)

    @abstractmethod
    def to_dict(self) -> dict[str, str]:
        """The variables that a tool reads: `{"SLACK_BOT_TOKEN": "..."}`."""

    @abstractmethod
    def to_profiled_dict(self, profile: str) -> dict[str, str]:
        """As `to_dict`, with the profile before each name: `{"WORK_SLACK_BOT_TOKEN": "..."}`."""
