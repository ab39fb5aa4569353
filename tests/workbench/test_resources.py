"""URI templates match as regular expressions, in linear time; values never lead out of a folder."""

import json

import pytest

from toolcrib import Crib
from toolcrib.core import DefinitionError
from toolcrib.workbench.resources import URITemplate

from ..held import held, seconds_of


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("cal://{day}{?zone}", "cal://2024?zone=a%20b&x=1", {"day": "2024", "zone": "a b"}),
        ("cal://{day}", "cal://a/b", None),
        ("cal://v{day}.txt", "cal://va.b.txt", {"day": "a.b"}),
        ("file:///{+folder}/{name}", "file:///a/b/c", {"folder": "a/b", "name": "c"}),
        ("file:///{+folder}/{name}", "file:///a/b%2Fc", {"folder": "a", "name": "b/c"}),
        ("file:///{+folder}/{name}", "file:///a/b?c", None),
        *(("file:///{+folder}/{name}", uri, None) for uri in ("file:///a", "file:///a/", "file:///a/../b", "f")),
        *(("file:///{name}", uri, None) for uri in ("file:///%2e%2e", "file:///a%2F..%2Fb", "file:///a%00")),
    ],
)
def test_a_uri_has_the_values_of_its_template(template: str, uri: str, values: dict[str, str] | None) -> None:
    assert URITemplate(template).match(uri) == values


def test_a_long_uri_that_nearly_matches_is_refused_at_once() -> None:
    assert URITemplate("cal://{+a}/x{b}-/y{c}-").match(f"cal://{'/x-y-' * 1600}") is None


@pytest.mark.parametrize(
    "text",
    [
        *("a://{x}/{x}", "a://{?q}/b", "a://{x,y}", "a://{", "a://x}", "a://{1}", "a://{x}{y}", "a://{x}-{y}"),
        *("a://{+x}/{+y}", "a://{x*}"),
    ],
)
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="not a URI template"):
        URITemplate(text)


async def test_a_long_resource_is_written_in_a_thread() -> None:
    """A resource of a crib is what somebody else has stored."""
    rows = [{"a": number} for number in range(100_000)]
    crib = Crib([])
    crib.resources.add("db://rows", lambda: rows)
    longest_s, result = await held(crib.workbench().offers.read("db://rows"))
    assert result.status == "success"
    assert longest_s < seconds_of(lambda: json.dumps(rows)) / 2
