"""Tokens of the admin API: `barid token`, their roles and tenants, and what is refused without one."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from broker import until
from running import barid

VIEWER, OPERATOR, ADMIN = ROLES = ("viewer", "operator", "admin")


class Admin:
    """Asks the admin address of one broker, with a token."""

    def __init__(self, broker, directory):
        self.broker, self.directory = broker, directory

    def ask(self, method: str, path: str, token: str | None = None, body: dict | None = None, **headers) -> tuple[int, dict | str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.admin_port, timeout=15)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
        answer = connection.getresponse()
        self.headers, text = answer.headers, answer.read().decode(errors="replace")
        connection.close()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def run(self, *arguments, token: str | None = None):
        if token:
            file = self.directory / "token"
            file.write_text(token + "\n")
            arguments += ("--token-file", file)
        return barid(*arguments, "--admin", f"127.0.0.1:{self.broker.admin_port}")

    def does(self, *arguments, token: str | None = None) -> str:
        done = self.run(*arguments, token=token)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *arguments, token: str | None = None) -> str:
        done = self.run(*arguments, token=token)
        assert done.returncode != 0, done.stdout
        return done.stderr


@pytest.fixture
def admin(broker_with, tmp_path) -> Admin:
    return Admin(broker_with(""), tmp_path)


@pytest.fixture
def tokens(admin) -> dict[str, str]:
    """A token of each role for the whole broker."""
    made = {ADMIN: admin.does("token", "create", "--role", ADMIN).strip()}
    for role in (VIEWER, OPERATOR):
        made[role] = admin.does("token", "create", "--role", role, token=made[ADMIN]).strip()
    return made


def test_from_the_first_token_on_requests_need_one(admin):
    assert admin.ask("GET", "/v1/tenants")[0] == 200
    made = admin.does("token", "create", "--role", "admin")
    assert made.count("\n") == 1 and made.startswith("barid_") and len(made) == 68
    token = made.strip()
    for path in ("/v1/tenants", "/metrics", "/v1/backup", "/v1/tokens"):
        assert admin.ask("GET", path)[0] == 401, path
        assert admin.headers["WWW-Authenticate"] == "Bearer"
        assert admin.ask("GET", path, token)[0] == 200, path
    assert admin.ask("DELETE", "/v1/bans/x")[0] == 401
    for path in ("/", "/healthz", "/health", "/dashboard/", "/dashboard/main.js"):
        assert admin.ask("GET", path)[0] == 200, path
    assert "needs a token" in admin.fails("tenant", "list")
    assert admin.does("tenant", "list", token=token)


def test_tokens_are_stored_and_revoked(admin, tokens):
    admin.broker.restart()
    listed = json.loads(admin.does("token", "list", "--json", token=tokens[ADMIN]))["tokens"]
    assert sorted(one["role"] for one in listed) == sorted(ROLES)
    assert not any(secret.rsplit("_", 1)[1] in json.dumps(listed) for secret in tokens.values())
    ids = {one["role"]: one["id"] for one in listed}
    assert admin.does("token", "revoke", ids[VIEWER], token=tokens[ADMIN]) == f"revoked {ids[VIEWER]}\n"
    assert admin.ask("GET", "/v1/tenants", tokens[VIEWER])[0] == 401
    assert "barid token list" in admin.fails("token", "revoke", ids[VIEWER], token=tokens[ADMIN])
    admin.does("token", "revoke", ids[OPERATOR], ids[ADMIN], token=tokens[ADMIN])
    assert admin.ask("GET", "/v1/tenants")[0] == 200, "there are none again"


def test_what_is_shown_must_be_a_token(admin, tokens):
    _, id_, secret = tokens[ADMIN].split("_")
    other = tokens[VIEWER].split("_")
    for wrong in (tokens[ADMIN][:-1], tokens[ADMIN].upper(), f"barid_{id_}_{other[2]}", f"barid_{other[1]}_{secret}", f"barid_{id_}_",
                  f"{id_}_{secret}", "barid", "", "x" * 5000):
        assert admin.ask("GET", "/v1/tenants", Authorization=f"Bearer {wrong}")[0] == 401, wrong
    for scheme, expected in (("bearer", 200), ("BEARER", 200), ("Basic", 401), ("", 401)):
        assert admin.ask("GET", "/v1/tenants", Authorization=f"{scheme} {tokens[ADMIN]}")[0] == expected, scheme
    assert admin.ask("GET", "/v1/tenants", tokens[ADMIN], Host="evil.example")[0] == 403
    assert admin.ask("GET", "/v1/tenants", tokens[ADMIN], Origin="http://evil.example")[0] == 403


PATHS = [("GET", "/v1/tenants", VIEWER), ("GET", "/metrics", VIEWER), ("GET", "/v1/users", VIEWER), ("GET", "/v1/shards", VIEWER),
         ("GET", "/v1/tenants/default/queues", VIEWER), ("GET", "/v1/tenants/default/state", VIEWER),
         ("GET", "/v1/tenants/default/state/k", OPERATOR), ("GET", "/v1/tenants/default/queues/q/messages", OPERATOR),
         ("DELETE", "/v1/tenants/default/queues/q/messages", OPERATOR),
         ("POST", "/v1/tenants/default/queues/q/messages/resubmit", OPERATOR), ("POST", "/v1/tenants/default/queues/q/messages", OPERATOR),
         ("POST", "/v1/tenants/default/queues/q/messages/receive", OPERATOR), ("POST", "/v1/tenants/default/topics/t/messages", OPERATOR),
         ("POST", "/v1/tenants/default/topics/t/subscriptions/s/messages/receive", OPERATOR),
         ("POST", "/v1/tenants/default/topics/t/subscriptions/s/messages/resubmit", OPERATOR), ("PUT", "/v1/tenants/default/queues/q", OPERATOR),
         ("DELETE", "/v1/tenants/default/sessions/c", OPERATOR), ("POST", "/v1/bans", OPERATOR), ("DELETE", "/v1/bans/x", OPERATOR),
         ("GET", "/v1/tenants/default/clients", VIEWER), ("DELETE", "/v1/tenants/default/clients/c", OPERATOR),
         ("GET", "/v1/tenants/default/clients/c/trace?rate=0", OPERATOR),
         ("GET", "/v1/tenants/default/receivers?topic=a", VIEWER), ("GET", "/v1/tenants/default/retained", VIEWER),
         ("GET", "/v1/tenants/default/retained/a/b", OPERATOR), ("DELETE", "/v1/tenants/default/retained/a", OPERATOR),
         ("POST", "/v1/tenants/default/publish", OPERATOR), ("GET", "/v1/tenants/default/messages?filter=a%23", OPERATOR),
         ("POST", "/v1/logins/changed", OPERATOR), ("PUT", "/v1/users/default/ada", ADMIN), ("PUT", "/v1/tenants/default", ADMIN),
         ("GET", "/v1/tokens", ADMIN), ("POST", "/v1/tokens", ADMIN), ("DELETE", "/v1/tokens/x", ADMIN), ("GET", "/v1/backup", ADMIN),
         ("PATCH", "/v1/shards/0", ADMIN), ("GET", "/v1/requester", VIEWER), ("GET", "/v1/broker", VIEWER), ("GET", "/v1/history", VIEWER),
         ("GET", "/v1/events?rate=0", VIEWER)]


def test_roles(admin, tokens):
    for method, path, needed in PATHS:
        for role in ROLES:
            status, answer = admin.ask(method, path, tokens[role], {} if method in ("PUT", "POST", "PATCH") else None)
            may = ROLES.index(role) >= ROLES.index(needed)
            assert (status in (401, 403)) != may, (method, path, role, answer)
            if not may:
                assert f"has the role {role}, and this needs the role {needed}" in answer["error"]


def test_a_token_of_one_tenant(admin, tokens):
    for tenant in ("acme", "other"):
        admin.ask("PUT", f"/v1/tenants/{tenant}", tokens[ADMIN], {"limits": {"max_sessions": 9}})
        admin.ask("PUT", f"/v1/users/{tenant}/ada", tokens[ADMIN], {"password": "secret", "cost": "device"})
        admin.ask("POST", "/v1/bans", tokens[ADMIN], {"client": "x", "tenant": tenant})
    admin.ask("POST", "/v1/bans", tokens[ADMIN], {"address": "192.0.2.1"})
    _, made = admin.ask("POST", "/v1/tokens", tokens[ADMIN], {"role": "admin", "tenant": "acme", "note": "theirs"})
    own = made["token"]

    def ask(method: str, path: str, body: dict | None = None):
        return admin.ask(method, path, own, body)

    assert [one["name"] for one in ask("GET", "/v1/tenants")[1]["tenants"]] == ["acme"]
    assert [one["user"] for one in ask("GET", "/v1/users")[1]["users"]] == ["acme/ada"]
    assert [one["tenant"] for one in ask("GET", "/v1/bans")[1]["bans"]] == ["acme"]
    assert [one["note"] for one in ask("GET", "/v1/tokens")[1]["tokens"]] == ["theirs"]
    bans = [one["id"] for one in admin.ask("GET", "/v1/bans", tokens[ADMIN])[1]["bans"]]
    (theirs,) = (one for one in bans if one.startswith("acme/"))
    for method, path, body in [
            ("GET", "/v1/tenants/other", None), ("GET", "/v1/tenants/other/sessions", None), ("GET", "/v1/tenants/other/clients", None),
            ("GET", "/v1/tenants/other/clients/c/trace", None),
            ("GET", "/v1/tenants/other/receivers?topic=a", None), ("GET", "/v1/tenants/other/retained", None),
            ("POST", "/v1/tenants/other/publish", {"topic": "a"}), ("DELETE", "/v1/tenants/other/clients/c", None),
            ("GET", "/v1/users?tenant=other", None),
            ("PUT", "/v1/users/other/bob", {"password": "secret"}), ("DELETE", "/v1/users/other/ada", None),
            ("GET", "/v1/bans?tenant=other", None), ("POST", "/v1/bans", {"client": "y", "tenant": "other"}),
            ("POST", "/v1/bans", {"address": "192.0.2.2"}), ("POST", "/v1/bans", {"user": "other/ada"}),
            ("POST", "/v1/logins/changed", {"all": True}), ("POST", "/v1/logins/changed", {"tenant": "other"}),
            ("POST", "/v1/logins/changed", {"user": "other/ada"}), ("POST", "/v1/tokens", {"role": "viewer"}),
            ("POST", "/v1/tokens", {"role": "viewer", "tenant": "other"}), ("PATCH", "/v1/tenants/acme", {"limits": {"max_sessions": 10}}),
            ("GET", "/metrics", None), ("GET", "/v1/backup", None), ("GET", "/v1/shards", None), ("GET", "/v1/tokens?tenant=other", None)]:
        assert ask(method, path, body)[0] == 403, (method, path, body)
    viewer = tokens[VIEWER].split("_")[1]
    for path in (f"/v1/tokens/{viewer}", *(f"/v1/bans/{ban.replace('/', '%2F')}" for ban in bans if ban != theirs)):
        assert ask("DELETE", path)[0] == 404, path
    for method, path, body, expected in [
            ("GET", "/v1/tenants/acme", None, 200), ("PATCH", "/v1/users/acme/ada", {"note": "x"}, 200),
            ("POST", "/v1/bans", {"address": "192.0.2.2", "tenant": "acme"}, 201), ("DELETE", f"/v1/bans/{theirs}", None, 204),
            ("POST", "/v1/logins/changed", {"tenant": "acme"}, 200), ("POST", "/v1/tokens", {"role": "viewer", "tenant": "acme"}, 201),
            ("PUT", "/v1/tenants/acme/queues/q", {}, 201), ("DELETE", f"/v1/tokens/{made['id']}", None, 204),
            ("GET", "/v1/tenants/acme", None, 401)]:
        assert ask(method, path, body)[0] == expected, (method, path)


def test_a_token_ends(admin, tokens):
    _, made = admin.ask("POST", "/v1/tokens", tokens[ADMIN], {"role": "viewer", "for_seconds": 1})
    assert admin.ask("GET", "/v1/tenants", made["token"])[0] == 200
    time.sleep(1.2)
    assert admin.ask("GET", "/v1/tenants", made["token"])[0] == 401
    shown = admin.does("token", "list", token=tokens[ADMIN])
    assert "has ended" in shown


def test_tokens_that_cannot_be_made(admin):
    for body, expected in [({}, "role"), ({"role": "root"}, "unknown variant"), ({"role": "viewer", "tenant": "a b"}, "`tenant`"),
                           ({"role": "viewer", "note": "a\nb"}, "`note`"), ({"role": "viewer", "for_seconds": 0}, "for_seconds"),
                           ({"role": "viewer", "hash": "x"}, "unknown field")]:
        status, answer = admin.ask("POST", "/v1/tokens", body=body)
        assert status == 400 and expected in answer["error"], answer
    assert admin.ask("GET", "/v1/tenants")[0] == 200


def test_changes_are_logged_with_the_token_and_no_secret(admin, tokens):
    admin.ask("POST", "/v1/bans", tokens[OPERATOR], {"address": "192.0.2.1"})
    admin.ask("POST", "/v1/bans", "barid_aaaaaaaa_bbbb", {"address": "192.0.2.1"})
    admin.ask("PUT", "/v1/users/default/ada", tokens[VIEWER], {"password": "secret"})
    until(lambda: "status=403" in admin.broker.stderr)
    log = admin.broker.stderr
    _, id_, _ = tokens[OPERATOR].split("_")
    assert any(f"with token {id_}" in line and 'path="/v1/bans"' in line and "status=201" in line for line in log.splitlines()), log
    assert any("refused a request without a valid token" in line and 'path="/v1/bans"' in line for line in log.splitlines())
    assert any('path="/v1/users/default/ada"' in line and "status=403" in line for line in log.splitlines())
    assert not any(token.rsplit("_", 1)[1] in log for token in tokens.values())


def test_an_operator_who_has_lost_the_token(admin, tokens):
    assert "admin.tokens" in admin.broker.reload("[admin]\ntokens = false\n")
    made = admin.does("token", "create", "--role", "admin").strip()
    admin.broker.reload("")
    assert admin.ask("GET", "/v1/tenants")[0] == 401
    assert admin.ask("GET", "/v1/tenants", made)[0] == 200


def test_a_file_that_has_no_token(admin, tmp_path):
    assert "No such file" in admin.fails("tenant", "list", "--token-file", tmp_path / "missing")
    (tmp_path / "empty").write_text("\n")
    assert "no token" in admin.fails("tenant", "list", "--token-file", tmp_path / "empty")


@pytest.mark.parametrize("arguments", [("viewer",), ("operator",), ("admin", "--tenant", "acme"), ("admin", "--for", "1h")], ids=" ".join)
def test_the_first_token_can_make_others(broker_with, arguments):
    """Otherwise nobody could make one, from the first on."""
    port = broker_with("").admin_port
    create = ("token", "create", "--admin", f"127.0.0.1:{port}", "--role")
    done = barid(*create, *arguments)
    assert done.returncode == 1 and "begin with `barid token create --role admin`" in done.stderr, done
    assert barid("token", "list", "--admin", f"127.0.0.1:{port}").stdout == "no tokens\n"
