"""The log as lines of JSON, for operators."""

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    """Log records as one line of JSON each: `at`, `level`, `logger`, `message`, and where there are, `reference`,
    `call` and `exception`.

    `reference` is the one in the message that a model got; `call` is the record of a call.
    """

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in ("reference", "call"):
            if (value := getattr(record, name, None)) is not None:
                data[name] = value
        if record.exc_text:  # with secrets redacted
            data["exception"] = record.exc_text
        elif record.exc_info:
            data["exception"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=True, default=str)
