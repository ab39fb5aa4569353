"""The names of AutoGen's loggers, to which programs attach their handlers."""

ROOT_LOGGER_NAME = "autogen_core"
EVENT_LOGGER_NAME = "autogen_core.events"
TRACE_LOGGER_NAME = "autogen_core.trace"
