"""The context of a node, the duration of an attempt, and models without a configuration."""

from typing import Any

import pytest

from toolcrib.dialects.spark.models.base import Model
from toolcrib.dialects.spark.models.echo import EchoModel
from toolcrib.dialects.spark.nodes.types import ExecutionContext, ExecutionMetadata, NodeMessage


def test_a_new_context_has_an_empty_message_and_an_empty_state() -> None:
    context: ExecutionContext[Any] = ExecutionContext()
    assert (context.inputs, context.state, context.outputs, context.graph_state) == (NodeMessage(), {}, None, None)
    assert (context.metadata.started_at, context.metadata.finished_at) == (None, None)
    other: ExecutionContext[Any] = ExecutionContext()
    context.state["seen"] = True
    assert other.state == {}


def test_metadata_have_the_duration_of_an_attempt_after_its_end() -> None:
    metadata = ExecutionMetadata()
    assert metadata.as_dict() == {"attempt": 1, "started_at": None, "finished_at": None, "duration": None}
    metadata.mark_started(2)
    assert (metadata.attempt, metadata.duration) == (2, None)
    metadata.started_at, metadata.finished_at = 10.0, 12.5
    assert metadata.as_dict() == {"attempt": 2, "started_at": 10.0, "finished_at": 12.5, "duration": 2.5}


async def test_a_custom_model_has_no_configuration_by_default() -> None:
    class Mute(Model):
        async def get_text(self, messages: Any, *more: Any, **others: Any) -> Any:
            return {"role": "assistant", "content": ""}

    model = Mute()
    assert (model.get_config(), model.name) == ({}, "Mute")
    with pytest.raises(NotImplementedError, match="Mute has no configuration to change"):
        model.update_config(model_id="other")


def test_an_echo_has_a_name_that_can_be_changed() -> None:
    echo = EchoModel()
    assert echo.get_config() == {"model_id": "echo", "streaming": False}
    echo.update_config(model_id="wall")
    assert (echo.model_id, echo.name) == ("wall", "EchoModel:wall")
