"""A person's answer to a call that waits in a graph: for the call that they were shown, and for no other.

LangGraph runs a node again from its first line with each answer, and hands the answers out in the order in which it is
asked for them: of several calls in one node, another would get the answer, and one that is done would run again. So an
answer is for the call in the interrupt that the checkpoint has, and the result of a call that was answered is kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig

from ..core import Approve, Deny, Pending, Result

_CHECKPOINTER, _SCRATCHPAD, _TASK = "__pregel_checkpointer", "__pregel_scratchpad", "__pregel_task_id"
MAX_RESULTS = 1000
_asking = threading.Lock()  # the sync calls of a node are in threads


class Results:
    """The last results of calls that were answered, by task of a graph and id of the call."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Result[Any]] = OrderedDict()

    def get(self, config: RunnableConfig, call_id: str | None) -> Result[Any] | None:
        return self._kept.get((_task(config), call_id or ""))

    def keep(self, config: RunnableConfig, call_id: str | None, result: Result[Any]) -> None:
        if call_id and result.pending is None:
            self._kept[_task(config), call_id] = result
            while len(self._kept) > MAX_RESULTS:
                self._kept.popitem(last=False)


def waits(result: Result[Any], config: RunnableConfig) -> bool:
    """Check whether *result* waits for an approval in a graph that can wait for it."""
    conf = config.get("configurable", {})
    in_graph = conf.get(_CHECKPOINTER) is not None and conf.get(_SCRATCHPAD) is not None
    return in_graph and result.pending is not None and result.pending.kind == "approval"


def checkpoint_of(config: RunnableConfig) -> tuple[Any, RunnableConfig]:
    """Return the checkpointer, and the config of the checkpoint at which the running task began."""
    conf: Mapping[str, Any] = config.get("configurable", {})
    namespace = str(conf.get("checkpoint_ns", "")).rpartition("|")[0]
    at = {"thread_id": conf["thread_id"], "checkpoint_ns": namespace}
    return conf[_CHECKPOINTER], {"configurable": at | {"checkpoint_id": conf["checkpoint_map"].get(namespace)}}


def answer_to(pending: Pending, saved: Any, config: RunnableConfig, call_id: str | None) -> Approve | Deny:
    """Return the answer to *pending*, by the checkpoint *saved*. Raises the interrupt where there is none yet."""
    from langgraph.errors import GraphInterrupt
    from langgraph.types import interrupt

    scratchpad = config.get("configurable", {})[_SCRATCHPAD]
    call = {"call_id": call_id, "digest": pending.digest}
    with _asking:
        for task, channel, value in saved.pending_writes or () if saved is not None else ():
            question = value[-1].value if task == _task(config) and channel == "__interrupt__" and value else None
            if isinstance(question, Mapping) and call.items() <= question.items():
                place = question["place"]
                answers = scratchpad.resume[place:] or [scratchpad.get_null_resume(False)]
                if place <= len(scratchpad.resume) and answers[0] is not None:
                    return _answer(answers[0])
        while True:  # past the answers to others
            place = len(scratchpad.resume)
            try:
                interrupt({"type": "approval", **pending.to_dict(), **call, "place": place})
            except GraphInterrupt:
                if place == len(scratchpad.resume):
                    raise


def _answer(answer: Any) -> Approve | Deny:
    if isinstance(answer, Mapping):
        is_approved = answer.get("type", answer.get("decision")) in ("approve", "accept")
        return Approve() if is_approved else Deny(str(answer.get("message") or answer.get("reason") or ""))
    return Approve() if answer is True or answer == "approve" else Deny(answer if isinstance(answer, str) else "")


def _task(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get(_TASK, ""))
