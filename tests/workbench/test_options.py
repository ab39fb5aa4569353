"""Options: declared once, and refused where they are not valid, with the way out."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from toolcrib import Crib, SetupError, Workbench
from toolcrib.schema.declared import doc_of
from toolcrib.workbench import Limit
from toolcrib.workbench.options import DEFAULTS, Options, require_options


def test_every_option_has_a_default_and_documentation() -> None:
    hints = get_type_hints(Options, include_extras=True)
    assert set(hints) == set(DEFAULTS)
    assert all(map(doc_of, hints.values()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"timout_s": 1},
            "Crib has no option 'timout_s'. Did you mean 'timeout_s'? The options are: timeout_s, repair,",
        ),
        ({"timeout_s": 0}, "Crib: 'timeout_s': expected more than 0."),
        ({"timeout_s": "3"}, "Crib: 'timeout_s': expected number (more than 0), got string."),
        ({"pending_timeout_s": None}, "Crib: 'pending_timeout_s': expected number (more than 0), got null."),
        ({"repair": 1}, "Crib: 'repair': expected boolean, got integer."),
        ({"max_result_chars": 5}, "Crib: 'max_result_chars': expected 0 or integer (at least 1000)."),
        ({"limits": [3]}, 'Crib: limits are Limit values, as in limits=[Limit("db_*", concurrency=4)], not int.'),
        ({"retries": 3}, 'Crib: retries are Retry values, as in retries=[Retry("gh_*", times=3)], not int.'),
        ({"secrets": "abcd"}, "Crib: secrets are texts, as in secrets=[key], not str."),
        ({"secrets": [b"abcd"]}, "Crib: secrets are texts, as in secrets=[key], not bytes."),
        ({"middleware": ["x"]}, "Crib: middleware are async functions, as in middleware=[cached], not str."),
        ({"policy": "allow"}, "Crib: 'policy' is a function, not str."),
        ({"ask": True}, "Crib: 'ask' is a function, not bool."),
        ({"variables": [1]}, "Crib: 'variables' is a mapping, not list."),
    ],
)
def test_an_invalid_option_is_refused_with_the_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as refused:
        require_options(options, of="Crib")
    assert str(refused.value).startswith(message)


def test_no_message_quotes_a_value() -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: require_options({"timeout_s": "hunter2"}, of="Crib"),
        lambda: require_options({"secrets": "hunter2"}, of="Crib"),
        lambda: Limit(per="hunter2", rate="1/s"),  # type: ignore[arg-type]
        lambda: Limit(rate="hunter2"),
    ]
    for call in wrong:
        with pytest.raises(SetupError) as refused:
            call()
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        (lambda: Workbench(around=[]), SetupError, "the option 'around' is now 'middleware'"),  # type: ignore[call-arg]
        (lambda: Crib(pending_s=1), SetupError, "the option 'pending_s' is now 'pending_timeout_s'"),  # type: ignore[call-arg]
        (lambda: Workbench().would_ask(), AttributeError, "is now 'needs_approval'"),
        (lambda: import_module("toolcrib").MCPServer, ImportError, "from toolcrib import MCPSource"),
        (lambda: import_module("toolcrib.workbench").Retries, ImportError, "from toolcrib.workbench import Retry"),
        (lambda: import_module("toolcrib.core").Retry, ImportError, "from toolcrib.core import RetryAdvice"),
    ],
)
def test_a_name_of_before_names_the_new_one(use: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        use()
