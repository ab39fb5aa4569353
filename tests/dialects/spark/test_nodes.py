"""The context of a node, the duration of an attempt, and models without a configuration."""

from typing import Any

import pytest

from toolcrib.dialects.spark.models.base import Model
from toolcrib.dialects.spark.models.echo import EchoModel


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
