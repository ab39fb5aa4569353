"""`hyperpocket.config.session`: where sessions are kept."""

from enum import Enum

from pydantic import BaseModel, Field


class SessionType(Enum):
    """Which storage: `IN_MEMORY`, or `REDIS`."""

    IN_MEMORY = "in_memory"
    REDIS = "redis"


class SessionConfigInMemory(BaseModel):
    """Sessions in memory need no settings."""


class SessionConfigRedis(BaseModel, extra="allow", hide_input_in_errors=True):
    """The server of the sessions; other keys, such as `password`, are options of redis-py's client."""

    host: str = "localhost"
    port: int = 6379
    db: int = 0
    password: str | None = Field(default=None, repr=False)


class SessionConfig(BaseModel):
    """`[session]` in the settings."""

    session_type: SessionType = SessionType.IN_MEMORY
    in_memory: SessionConfigInMemory = Field(default_factory=SessionConfigInMemory)
    redis: SessionConfigRedis = Field(default_factory=SessionConfigRedis)


DefaultSessionConfig = SessionConfig()
