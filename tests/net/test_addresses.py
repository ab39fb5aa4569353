"""Which addresses are public, and which entries are hosts."""

import pytest

from toolcrib import SetupError
from toolcrib.net import Guard, GuardError

NOT_PUBLIC = [
    *("0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.0.1", "192.0.2.1"),
    *("192.0.0.8", "192.0.0.170", "192.88.99.1"),
    *("192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1"),
    *("64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1"),
    *("3fff::1", "5f00::1", "fc00::1", "fd00::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "140.82.121.4", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e"]


def url(address: str) -> str:
    return f"https://[{address}]/" if ":" in address else f"https://{address}/"


@pytest.mark.parametrize("address", NOT_PUBLIC)
async def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    with pytest.raises(GuardError):
        Guard().check(url(address))
    with pytest.raises(GuardError):
        await Guard(resolve=resolve).addresses("any.example", 443, "https")
    Guard(allow=[address]).check(url(address))
    assert await Guard(resolve=resolve, allow=["*.example"]).addresses("any.example", 443, "https") == [address]


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_is_reached_by_https(address: str) -> None:
    Guard().check(url(address))
    assert await Guard().addresses(address, 443, "https") == [address]
    with pytest.raises(GuardError, match="https only"):
        Guard().check(url(address).replace("https", "http"))


def test_zones_and_ports_and_idna_are_understood() -> None:
    guard = Guard(hosts=["faß.de", "[::1]:8443", "*.example.com:8443", "10.0.0.1"], allow=["::1", "10.0.0.0/8"])
    for accepted in (
        *("https://faß.de/", "https://xn--fa-hia.de", "https://FA\u00df.de:443/", "https://[::1]:8443/"),
        *("https://a.example.com:8443/", "https://a.b.example.com:8443", "https://10.0.0.1/", "http://10.0.0.1:443/"),
    ):
        guard.check(accepted)
    for refused in (
        *("https://fass.de/", "https://[::1]/", "https://example.com:8443/", "https://a.example.com/"),
        *("http://10.0.0.1/", "https://10.0.0.2/", "https://[::1%25lo]:8443/", "https://[fe80::1%lo]/"),
        *("https://\uff46aß.de/", "https://", ""),
        *("https://faß.de:99999/", "https://\x00", "https://[::1", "https:///faß.de"),
    ):
        with pytest.raises(GuardError):
            guard.check(refused)


@pytest.mark.parametrize(
    "entry", ["", "https://a.example", "a.example/x", "user@a.example", "*", "a.*.example", "a b", "[x", "\ud800"]
)
def test_an_entry_that_is_not_a_host_is_refused(entry: str) -> None:
    with pytest.raises(SetupError, match="is not a host"):
        Guard(hosts=[entry])
    with pytest.raises(SetupError, match="is not a host"):
        Guard(allow=[entry])


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ("ftp://api.example/", "A URL begins with https:// and a host, not with 'ftp:'."),
        ("ftp://api.example:443/", "A URL begins with https:// and a host, not with 'ftp:'."),
        ("https:///path", "A URL begins with https:// and a host, not with 'https:'."),
        ("https://ada:key@api.example/", "A URL may not have a user name in it; this one, of 'api.example', has."),
        (
            "https://other.example/",
            "'other.example', port 443, may not be reached here. Only these may: api.example, api.example:8443, "
            "api.example:80.",
        ),
    ],
)
def test_the_reason_why_a_url_is_refused(refused: str, message: str) -> None:
    guard = Guard(hosts=["api.example", "api.example:8443", "api.example:80"])
    guard.check("https://api.example/")
    guard.check("http://api.example/")  # by which port: the scheme is refused where its address is known
    with pytest.raises(GuardError) as raised:
        guard.check(refused)
    assert raised.value.message == message
    assert (raised.value.code, raised.value.retry) == ("denied", "changed")
