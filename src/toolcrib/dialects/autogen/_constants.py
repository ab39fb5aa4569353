"""The names of AutoGen's loggers. Programs attach their handlers to them, so they stay as they are."""

ROOT_LOGGER_NAME = "autogen_core"
EVENT_LOGGER_NAME = "autogen_core.events"
TRACE_LOGGER_NAME = "autogen_core.trace"
