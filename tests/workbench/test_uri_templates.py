"""URI templates match as regular expressions would, and in linear time."""

import random
import re

import pytest

from toolcrib import DefinitionError
from toolcrib.workbench.uri_templates import URITemplate


def test_the_first_variable_is_as_long_as_it_can_be() -> None:
    dates = URITemplate("cal://{year}-{month}-{day}{?zone}")
    assert dates.match("cal://2024-01-02?zone=a%20b&x=1") == {"year": "2024", "month": "01", "day": "02", "zone": "a b"}
    assert dates.match("cal://a-b-c-d") == {"year": "a-b", "month": "c", "day": "d"}
    files = URITemplate("file:///{+folder}/{name}")
    assert files.match("file:///a/b/c") == {"folder": "a/b", "name": "c"}
    assert [files.match(uri) for uri in ("file:///a", "file:///a/", "file:///a/../b", "file:///a/%2e%2e", "f")] == (
        [None] * 5
    )


def test_matches_are_those_of_a_regular_expression() -> None:
    rnd = random.Random(7)
    matches = 0
    for _ in range(3000):
        text = pattern = uri = ""
        for number in range(rnd.randint(0, 3)):
            literal, sign = "".join(rnd.choices("a-/", k=rnd.randint(0, 2))), rnd.choice(("", "+"))
            text += f"{literal}{{{sign}v{number}}}"
            pattern += literal + ("([^?#]+)" if sign else "([^/?#]+)")
            uri += literal + "".join(rnd.choices("ab-/", k=rnd.randint(1, 3)))
        expected = re.fullmatch(pattern, uri)
        found = URITemplate(text).match(uri)
        assert (None if found is None else [*found.values()]) == (expected and [*expected.groups()]), (text, uri)
        matches += found is not None
    assert matches > 500


def test_a_long_uri_that_nearly_matches_holds_nobody_up() -> None:
    assert URITemplate("cal://{a}-{b}-{c}-{d}-{e}").match(f"cal://{'-' * 8000}/") is None


@pytest.mark.parametrize("text", ["a://{x}/{x}", "a://{?q}/b", "a://{x,y}", "a://{", "a://x}", "a://{1}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a URI template"):
        URITemplate(text)
