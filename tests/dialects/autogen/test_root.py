import toolcrib.dialects.autogen as autogen
from toolcrib.workbench.settings import unknown_variables


def test_the_root_has_the_names_of_autogens() -> None:
    ours = {"UntrustedError", "allow_source_code", "trust_namespaces"}
    assert set(autogen.__all__) - ours == {
        "CancellationToken",
        "Component",
        "ComponentBase",
        "ComponentFromConfig",
        "ComponentLoader",
        "ComponentModel",
        "ComponentSchemaType",
        "ComponentToConfig",
        "ComponentType",
        "EVENT_LOGGER_NAME",
        "FunctionCall",
        "Image",
        "ROOT_LOGGER_NAME",
        "TRACE_LOGGER_NAME",
        "is_component_class",
        "is_component_instance",
        "trace_tool_span",
    }
    assert all(hasattr(autogen, name) for name in autogen.__all__)


def test_the_variable_for_source_code_is_a_known_setting() -> None:
    assert unknown_variables({"TOOLCRIB_ALLOW_SOURCE_CODE": "1"}) == []
