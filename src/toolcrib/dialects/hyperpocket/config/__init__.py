"""`hyperpocket.config`: the settings. Importing it reads and writes nothing."""

import logging

from .settings import Config, config

pocket_logger = logging.getLogger("pocket_logger")

__all__ = ["Config", "config", "pocket_logger"]
