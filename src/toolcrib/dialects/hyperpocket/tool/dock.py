"""`hyperpocket.tool.dock.dock`: the base of what makes tools of other things."""

import abc
from typing import Any, Generic, TypeVar

from ..._modules import also_as
from .function import FunctionTool

DockToolLike = TypeVar("DockToolLike")


class Dock(abc.ABC, Generic[DockToolLike]):
    """Makes a FunctionTool of something else. An instance is a loader: `loaders = {str: MyDock()}` in a Pocket."""

    @abc.abstractmethod
    def dock(self, tool_like: DockToolLike, *args: Any, **kwargs: Any) -> FunctionTool:
        """Return the tool of *tool_like*."""
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> FunctionTool:
        return self.dock(*args, **kwargs)


also_as(__name__, "dock")
