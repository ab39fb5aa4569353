"""What the guarded client connects to, sends on, and takes: against real servers."""

import gzip
import os
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx2
import pytest

from toolcrib import ToolError, Workbench, tool
from toolcrib.net import Guard, GuardError, Resolve, client
from toolcrib.net.client import GuardedTransport

LOOPBACK = ["127.0.0.0/8"]
Serve = Callable[..., Any]
Answer = Callable[..., Any]


def names(**addresses: str) -> Resolve:
    """Names that lead to these addresses, several with spaces between; `_` stands for `.`."""
    known = {name.replace("_", "."): found.split() for name, found in addresses.items()}

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host not in known:
            raise OSError("no such name")
        return known[host]

    return resolve


async def refusal(url: str, **options: Any) -> GuardError:
    async with client(**options) as http:
        with pytest.raises(GuardError) as refused:
            await http.get(url, follow_redirects=True)
    return refused.value


async def test_what_is_allowed_is_reached(serve: Serve) -> None:
    server = serve()
    async with client(allow=LOOPBACK) as http:
        assert (await http.get(f"http://127.0.0.1:{server.port}/")).text == "hello"
        assert (await http.get(f"http://localhost:{server.port}/")).text == "hello"
    async with client(allow=["127.0.0.1"], hosts=[f"127.0.0.1:{server.port}"]) as http:
        assert (await http.get(f"http://127.0.0.1:{server.port}/")).text == "hello"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "017700000001", "127.1", "0", "0.0.0.0", "[::]"]
)
async def test_loopback_is_not_reached_however_it_is_written(host: str, serve: Serve) -> None:
    server = serve()
    for scheme in ("http", "https"):
        assert (await refusal(f"{scheme}://{host}:{server.port}/")).code == "denied"
    assert server.requests == []


async def test_every_address_of_a_name_is_checked(serve: Serve) -> None:
    server = serve()
    for addresses in ("127.0.0.1", "93.184.215.14 127.0.0.1", "::ffff:127.0.0.1", "fe80::1%lo", "not-an-address"):
        refused = await refusal(f"https://any.example:{server.port}/", resolve=names(any_example=addresses))
        assert "does not lead to a public address" in refused.message
        assert "127" not in refused.message
    assert server.requests == []
    async with client(resolve=names(any_example="")) as http:
        for host in ("any.example", "other.example"):
            with pytest.raises(httpx2.ConnectError):
                await http.get(f"https://{host}/")


async def test_a_name_is_looked_up_once_for_a_connection(serve: Serve) -> None:
    server = serve("127.0.0.2")
    answers = [["127.0.0.2"], ["127.0.0.1"]]

    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers.pop(0)

    async with client(allow=["127.0.0.2"], resolve=resolve) as http:
        response = await http.get(f"http://any.example:{server.port}/", headers={"connection": "close"})
        assert (response.text, len(answers)) == ("hello", 1)
        with pytest.raises(GuardError):
            await http.get(f"http://any.example:{server.port}/")


async def test_the_certificate_is_that_of_the_name_and_not_of_the_address(serve: Serve, trust: ssl.SSLContext) -> None:
    server = serve(tls=True)
    resolve = names(api_example="127.0.0.1", other_example="127.0.0.1")
    async with client(allow=LOOPBACK, resolve=resolve, verify=trust) as http:
        assert (await http.get(f"https://api.example:{server.port}/")).text == "hello"
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await http.get(f"https://other.example:{server.port}/")


async def test_certificates_are_checked_unless_the_host_says_otherwise(serve: Serve) -> None:
    server = serve(tls=True)
    options: dict[str, Any] = {"allow": LOOPBACK, "resolve": names(api_example="127.0.0.1")}
    url = f"https://api.example:{server.port}/"
    async with client(**options) as http:
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await http.get(url)
    async with client(**options, verify=False) as http:
        assert (await http.get(url)).text == "hello"
    async with httpx2.AsyncClient(transport=GuardedTransport(Guard(**options), 1000, 30.0)) as http:
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await http.get(url)


async def test_http_is_for_what_is_allowed_only(serve: Serve) -> None:
    refused = await refusal("http://any.example/", resolve=names(any_example="93.184.215.14"))
    assert refused.message == "'any.example' may be reached by https only."
    assert "https only" in (await refusal("http://93.184.215.14/")).message


async def test_only_the_hosts_that_are_named_are_reached(serve: Serve, trust: ssl.SSLContext) -> None:
    server = serve(tls=True)
    port = server.port
    resolve = names(
        api_example="127.0.0.1", a_shop_example="127.0.0.1", shop_example="127.0.0.1", evil_example="127.0.0.1"
    )
    options: dict[str, Any] = {"allow": LOOPBACK, "resolve": resolve, "verify": trust}
    async with client(hosts=[f"API.example:{port}", f"*.shop.example:{port}"], **options) as http:
        assert (await http.get(f"https://api.example:{port}/")).text == "hello"
        assert (await http.get(f"https://A.Shop.example:{port}/")).text == "hello"
        for url in (
            f"https://shop.example:{port}/",
            f"https://evil.example:{port}/",
            f"https://api.example.evil.example:{port}/",
            f"https://evilapi.example:{port}/",
            f"https://api.example.:{port}/",
            "https://api.example/",
            f"https://api.example:{port + 1}/",
            f"https://127.0.0.1:{port}/",
            f"https://evil.example:{port}/@api.example",
            f"https://evil.example:{port}#@api.example:{port}/",
            f"https://api.example:{port}@evil.example:{port}/",
            f"https://api.example:{port}%40evil.example:{port}/",
            f"https://api.example\\@evil.example:{port}/",
            f"https://evil.example:{port}\\.api.example/",
        ):
            with pytest.raises((GuardError, httpx2.InvalidURL)):
                await http.get(url)
    assert len(server.requests) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_checked_as_the_first_request_is(status: int, serve: Serve, answer: Answer) -> None:
    server, inner = serve("127.0.0.2"), serve("127.0.0.1")
    start = f"http://127.0.0.2:{server.port}/"
    for target in (
        f"http://127.0.0.1:{inner.port}/",
        f"http://2130706433:{inner.port}/",
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://[fd00::1]/",
        "https://user@example.com/",
        f"//127.0.0.1:{inner.port}/",
    ):
        server.answers["/"] = answer(b"", status, location=target)
        assert (await refusal(start, allow=["127.0.0.2"])).code == "denied"
    assert inner.requests == []


async def test_what_authorizes_a_request_is_not_sent_on_to_another_origin(serve: Serve, answer: Answer) -> None:
    first, second = serve("127.0.0.1"), serve("127.0.0.2")
    first.answers["/"] = answer(b"", 302, location="/here")
    first.answers["/here"] = answer(b"", 302, location=f"http://127.0.0.2:{second.port}/", set_cookie="a=1")
    second.answers["/"] = answer(b"", 302, location=f"http://127.0.0.1:{first.port}/back")
    secrets = {"authorization": "Bearer canary", "x-api-key": "canary", "cookie": "session=canary"}
    async with client(allow=LOOPBACK, headers={"x-auth": "canary"}, cookies={"all": "canary"}) as http:
        response = await http.get(
            f"http://127.0.0.1:{first.port}/", headers=secrets, auth=("user", "canary"), follow_redirects=True
        )
    assert response.text == "hello"
    assert [path for path, _ in first.requests] == ["/", "/here", "/back"]
    assert "canary" in str(first.requests[1])
    ((_, headers),) = second.requests
    assert headers.keys() <= {"host", "accept", "accept-encoding", "user-agent", "connection"}
    assert headers["host"] == f"127.0.0.2:{second.port}"
    assert "canary" not in str(first.requests[2])


@pytest.mark.parametrize("status", [307, 308])
async def test_a_body_is_not_sent_on_to_another_origin(status: int, serve: Serve, answer: Answer) -> None:
    first, second = serve("127.0.0.1"), serve("127.0.0.2")
    first.answers["/"] = answer(b"", status, location=f"http://127.0.0.2:{second.port}/")

    async def chunks() -> Any:
        yield b"canary"

    async with client(allow=LOOPBACK, follow_redirects=True) as http:
        for content in (b"canary", chunks()):
            with pytest.raises((GuardError, httpx2.StreamConsumed)):
                await http.post(f"http://127.0.0.1:{first.port}/", content=content)
        first.answers["/"] = answer(b"", status, location="/there")
        assert (await http.post(f"http://127.0.0.1:{first.port}/", content=b"canary")).text == "hello"
    assert second.requests == []


async def test_a_response_is_bounded_also_when_it_is_decompressed(serve: Serve, answer: Answer) -> None:
    server = serve()
    small, bomb = gzip.compress(b"hello" * 100), gzip.compress(bytes(10_000_000))
    server.answers |= {
        "/small": answer(small, content_encoding="gzip"),
        "/bomb": answer(bomb, content_encoding="gzip"),
        "/large": answer(b"x" * 20_001),
        "/fits": answer(b"x" * 20_000),
        "/br": answer(b"x", content_encoding="br"),
        "/torn": answer(small[:-10], content_encoding="gzip"),
        "/not": answer(b"hello", content_encoding="gzip"),
        "/more": answer(small + b"more", content_encoding="gzip"),
    }
    async with client(allow=LOOPBACK, max_bytes=20_000, base_url=f"http://127.0.0.1:{server.port}") as http:
        assert (await http.get("/small")).text == "hello" * 100
        assert len((await http.get("/fits")).content) == 20_000
        assert (await http.head("/small")).text == ""
        for path in ("/bomb", "/large", "/br"):
            with pytest.raises(GuardError) as refused:
                await http.get(path)
            assert refused.value.code == "too_large"
        for path in ("/torn", "/not", "/more"):
            with pytest.raises(httpx2.DecodingError):
                await http.get(path)
        async with http.stream("GET", "/large") as response:
            with pytest.raises(GuardError):
                async for _ in response.aiter_bytes():
                    pass


async def test_a_request_ends_in_time_whatever_the_server_does(serve: Serve, answer: Answer) -> None:
    server, ended = serve(), threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000000")
        handler.end_headers()
        while not ended.wait(0.02):
            handler.wfile.write(b"x")

    def hang(handler: BaseHTTPRequestHandler) -> None:
        ended.wait(60)

    server.answers |= {"/trickle": trickle, "/hang": hang, "/round": answer(b"", 302, location="/round")}
    try:
        options: dict[str, Any] = {"allow": LOOPBACK, "timeout_s": 0.3, "max_redirects": 10**9}
        async with client(base_url=f"http://127.0.0.1:{server.port}", follow_redirects=True, **options) as http:
            for path in ("/trickle", "/hang", "/round"):
                with pytest.raises(GuardError) as late:
                    await http.get(path)
                assert late.value.code == "timeout"
            # The time of the next request is its own, also where it is the same object.
            request = http.build_request("GET", "/")
            for _ in range(2):
                assert (await http.send(request)).text == "hello"
    finally:
        ended.set()


async def test_proxies_of_the_environment_are_not_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server, proxy = serve(), serve()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setitem(os.environ, name, f"http://127.0.0.1:{proxy.port}")
    url = f"http://127.0.0.1:{server.port}/"
    async with client(allow=LOOPBACK) as http:
        await http.get(url)
    assert (len(server.requests), len(proxy.requests)) == (1, 0)
    async with client(allow=LOOPBACK, proxy=f"http://127.0.0.1:{proxy.port}") as http:
        await http.get(url)
        with pytest.raises(GuardError):
            await http.get("http://10.0.0.1/")
        with pytest.raises(httpx2.ConnectError, match="has no address"):
            await http.get(f"https://{'a' * 70}.example/")
    assert (len(server.requests), [path for path, _ in proxy.requests]) == (1, [url])


async def test_a_model_reads_why_a_url_was_refused() -> None:
    @tool
    async def fetch(url: str) -> str:
        async with client() as http:
            return (await http.get(url)).text

    result = await Workbench([fetch]).call("fetch", {"url": "https://169.254.169.254/latest"})
    assert (result.error.code, result.error.retry) == ("denied", "changed")
    assert result.text == (
        "'169.254.169.254' may not be reached: it does not lead to a public address. The operator can allow it."
    )
    assert issubclass(GuardError, ToolError)
    assert issubclass(GuardError, httpx2.TransportError)
