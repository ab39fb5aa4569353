"""The addresses at which handlers of OAuth 2.0 ask for grants."""

from urllib.parse import parse_qs, urlsplit

from toolcrib.auth import load_catalogue
from toolcrib.dialects.hyperpocket.pocket_auth import PocketAuth

from .conftest import Settings


def test_each_of_the_19_urls_has_what_a_callback_is_matched_by(settings: Settings) -> None:
    names = [name for name, entry in load_catalogue().items() if entry.oauth2 is not None]
    client = 'client_id = "the-id"\nclient_secret = "s"\ndomain_url = "https://acme.my.salesforce.com"\n'
    settings("".join(f"[auth.{name}]\n{client}" for name in names))
    auth = PocketAuth()
    wrong = []
    for name in names:
        handler = auth.find_handler_instance(f"{name}-oauth2")
        text = handler.prepare(handler.make_request(), "alice", "default", f"uid-of-{name}")
        query = {key: values[0] for key, values in parse_qs(urlsplit(text).query).items()}
        expected = {
            "response_type": "code",
            "client_id": "the-id",
            "state": f"uid-of-{name}",
            "redirect_uri": f"https://localhost:8001/proxy/auth/{name}/oauth2/callback",
        }
        if not expected.items() <= query.items():
            wrong.append((name, query))
    assert len(names) == 19
    assert wrong == []
