"""Docstrings become the description of a tool and of its parameters, in the three styles people write."""

from typing import Any

import pytest

from toolcrib import Tool


def read(text: str | None) -> tuple[str, dict[str, str]]:
    def fn(a: int, b: str = "", *rest: int, **named: int) -> int: ...  # type: ignore[empty-body]

    fn.__doc__ = text
    spec = Tool(fn).spec
    properties: dict[str, Any] = spec.input_schema["properties"]
    return spec.description, {name: p["description"] for name, p in properties.items() if "description" in p}


GOOGLE = """Do it.

    At length, and
    on two lines.

    Args:
        a: The first: with a colon.
        b (str, optional): The second,
            which goes on.

            And on.
        *rest: The others.
        **named: Any.

    Returns:
        A number.

    Raises:
        ValueError: Never.
    """

NUMPY = """Do it.

    At length, and
    on two lines.

    Parameters
    ----------
    a : int
        The first: with a colon.
    b : str, optional
        The second,
        which goes on.

        And on.
    *rest
        The others.

    Returns
    -------
    int
        A number.

    Raises
    ------
    ValueError
        Never.
    """

SPHINX = """Do it.

    At length, and
    on two lines.

    :param a: The first: with a colon.
    :param str b: The second,
        which goes on.
        And on.
    :param rest: The others.
    :type a: int
    :returns: A number.
    :raises ValueError: Never.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_gives_the_same_words(text: str) -> None:
    assert read(text) == (
        "Do it.\n\nAt length, and\non two lines.",
        {"a": "The first: with a colon.", "b": "The second, which goes on. And on.", "rest": "The others."},
    )


@pytest.mark.parametrize(
    ("text", "description"),
    [
        (None, ""),
        ("", ""),
        ("   \n  ", ""),
        ("Do it.", "Do it."),
        ("Do it.\n\n    Twice.", "Do it.\n\nTwice."),
        ("Args are read: all of them.", "Args are read: all of them."),
        ("Do it.\n\n    - one\n    - two: three", "Do it.\n\n- one\n- two: three"),
        ("Do it.\n\n    Example::\n\n        fn(1)", "Do it.\n\nExample::\n\n    fn(1)"),
        ("Grüße, 你好.", "Grüße, 你好."),
    ],
)
def test_text_without_sections_is_the_description(text: str | None, description: str) -> None:
    assert read(text) == (description, {})


def test_notes_stay_among_the_words() -> None:
    description, parameters = read(
        """Do it.

        Note:
            Not on Sundays.

        Args:
            a: The first.

        Warning:
            It is hot.
        """
    )
    assert description == "Do it.\n\nNote: Not on Sundays.\n\nWarning: It is hot."
    assert parameters == {"a": "The first."}


def test_a_broken_docstring_is_no_error() -> None:
    description, _ = read("Do it.\n\n    Args:\n    a: not indented\n        : nothing\n  Returns:")
    assert description.startswith("Do it.")
    assert read("Do it.\n\n    :param: nothing\n    :param a")[0].startswith("Do it.")


def test_methods_inherit_their_docstring_and_objects_have_that_of_their_class() -> None:
    class Base:
        def work(self, a: int) -> int:
            """Works.

            Args:
                a: The first.
            """
            return a

    class Derived(Base):
        def work(self, a: int) -> int:
            return a

    class Callable:
        """Calls."""

        def __call__(self, a: int) -> int:
            return a

    class Silent:
        def __call__(self, a: int) -> int:
            return a

    spec = Tool(Derived().work).spec
    assert (spec.description, spec.input_schema["properties"]["a"]["description"]) == ("Works.", "The first.")
    assert Tool(Callable()).spec.description == "Calls."
    assert Tool(Silent()).spec.description == ""
