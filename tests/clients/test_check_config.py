"""`barid check-config`: what is wrong, where, and what to do; `barid serve` says the same and does not start."""

import json

import pytest

from running import barid, hashed

MISTAKES = {
    "syntax": ("[limits\n", 1, "expected", ""),
    "key": ("[limits]\n\nmax_qso = 1\n", 3, "unknown key `max_qso`", "did you mean `max_qos`?"),
    "table": ("[limit]\n", 1, "unknown key `limit`", "did you mean `limits`?"),
    "type": ('workers = "two"\n', 1, "whole number", ""),
    "range": ("[limits]\nreceive_maximum = 70000\n", 2, "70000", "65535"),
    "value": ('[shared_subscriptions]\nstrategy = "roundrobin"\n', 2, "roundrobin", "round-robin"),
    "address": ('[admin]\naddress = "localhost:80"\n', 2, "address", "127.0.0.1"),
    "tls": ('[listeners.mqtts]\naddress = "127.0.0.1:0"\n', 2, "", "[tls]"),
    "file": ('[tls]\ncertificate = "/nowhere/server.pem"\nkey = "/nowhere/server.key"\n', 2, "/nowhere/server.pem", ""),
    "world": ('[listeners]\nmqtt = { address = "0.0.0.0:1883" }\n', 2, "[[users]]", "barid passwd"),
    "password": ('[[users]]\nname = "a"\npassword = "secret"\n', 3, "not a password hash", "barid passwd"),
    "one user twice": ('[[users]]\nname = "x"\npassword = "HASH"\n[[users]]\nname = "default/x"\npassword = "HASH"\n', 5,
                       "`default/x` and `x` are one user", "one [[users]]"),
    "never logs in": ('[[users]]\nname = "a b/x"\npassword = "HASH"\n', 2, "cannot contain ' '", "{tenant}/{client}"),
    "too long to log in": (f'[[users]]\nname = "{"t" * 65}/x"\npassword = "HASH"\n', 2, "64 bytes", "{tenant}/{client}"),
    "tenant": ('["tenants"."a b".limits]\nmax_qos = 1\n', 1, "cannot contain ' '", "{tenant}/{client}"),
    "client identifiers": ("[limits]\nmax_client_id_bytes = 1\n", 2, "the minimum is 23", "23 bytes"),
    "key": ('[[keys]]\nname = "a%b"\nkey = "s"\nrights = ["Send"]\n', 2, "not a valid name of a key", "without %"),
    "binding": ('[[bindings]]\nname = "b"\nfilter = "a"\nqueue = "no such"\n', 4, '"no such" is not the name of a queue', "entities.md"),
    "rule": ('[[users]]\nname = "a"\npassword = "HASH"\npublish = ["a/#/b"]\n', 4, "not a topic filter", "devices/%c/#"),
}


@pytest.fixture(params=MISTAKES)
def mistake(request, tmp_path):
    toml, line, message, hint = MISTAKES[request.param]
    file = tmp_path / "barid.toml"
    file.write_text(toml.replace("HASH", hashed("x")) if "HASH" in toml else toml)
    return file, line, message, hint


def test_line_message_and_hint(mistake):
    file, line, message, hint = mistake
    done = barid("check-config", file)
    assert done.returncode == 1
    assert f"{file}:{line}:" in done.stdout and message in done.stdout and hint in done.stdout, done.stdout
    told = json.loads(barid("check-config", "--json", file).stdout)
    assert told["ok"] is False
    assert told["problems"][0]["line"] == line and message in told["problems"][0]["message"] + (told["problems"][0]["hint"] or "")


def test_serve_says_the_same_and_does_not_start(mistake, tmp_path):
    file, line, message, _ = mistake
    done = barid("serve", "--config", file, "--data-dir", tmp_path / "data")
    assert done.returncode == 1
    assert f"{file}:{line}:" in done.stderr and message in done.stderr, done.stderr
    assert not (tmp_path / "data").exists()


def test_all_mistakes_at_once(tmp_path):
    file = tmp_path / "barid.toml"
    file.write_text("colour = 1\n[limits]\nmax_qos = true\nmax_inflight = -1\n")
    problems = json.loads(barid("check-config", "--json", file).stdout)["problems"]
    assert [problem["line"] for problem in problems] == [1, 3, 4]


def test_a_good_file(tmp_path):
    file = tmp_path / "barid.toml"
    file.write_text(hashed("secret", "acme/ada") + '\n[tenants.acme.limits]\nmax_connections = 10\n')
    done = barid("check-config", file)
    assert done.returncode == 0 and "ok" in done.stdout and "acme" in done.stdout
    assert json.loads(barid("check-config", "--json", file).stdout)["ok"] is True


def test_no_file(tmp_path):
    done = barid("check-config", tmp_path / "none.toml")
    assert done.returncode == 1 and "none.toml" in done.stdout
