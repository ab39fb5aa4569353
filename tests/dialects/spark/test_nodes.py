"""What a node is given, and how long it took; and models without a configuration."""

from typing import Any

import pytest

from toolcrib.dialects.spark.models.base import Model
from toolcrib.dialects.spark.models.echo import EchoModel
from toolcrib.dialects.spark.nodes.types import ExecutionContext, ExecutionMetadata, NodeMessage


def test_a_context_without_anything_has_an_empty_message_and_an_empty_state() -> None:
    context: ExecutionContext[Any] = ExecutionContext()
    assert (context.inputs, context.state, context.outputs, context.graph_state) == (NodeMessage(), {}, None, None)
    assert (context.metadata.started_at, context.metadata.finished_at) == (None, None)
    other: ExecutionContext[Any] = ExecutionContext()
    context.state["seen"] = True
    assert other.state == {}


def test_metadata_tell_how_long_an_attempt_took_once_it_has_ended() -> None:
    metadata = ExecutionMetadata()
    assert metadata.as_dict() == {"attempt": 1, "started_at": None, "finished_at": None, "duration": None}
    metadata.mark_started(2)
    assert (metadata.attempt, metadata.duration) == (2, None)
    metadata.started_at, metadata.finished_at = 10.0, 12.5
    assert metadata.as_dict() == {"attempt": 2, "started_at": 10.0, "finished_at": 12.5, "duration": 2.5}


async def test_a_model_of_ones_own_has_no_configuration_unless_it_says_so() -> None:
    class Mute(Model):
        async def get_text(self, messages: Any, *more: Any, **others: Any) -> Any:
            return {"role": "assistant", "content": ""}

    model = Mute()
    assert (model.get_config(), model.name) == ({}, "Mute")
    with pytest.raises(NotImplementedError, match="Mute has no configuration to change"):
        model.update_config(model_id="other")


def test_an_echo_has_a_name_that_can_be_changed() -> None:
    echo = EchoModel()
    assert echo.get_config() == {"model_id": "echo-model"}
    echo.update_config(model_id="wall")
    assert (echo.model_id, echo.name) == ("wall", "EchoModel:wall")
