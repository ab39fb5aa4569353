"""`hyperpocket.futures`: what grants wait for, one store a process."""

from .futurestore import CallbackCode, FutureData
from .futurestore import FutureStore as _FutureStore

FutureStore = _FutureStore()

__all__ = ["CallbackCode", "FutureData", "FutureStore"]
