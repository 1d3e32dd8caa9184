"""Users, settings of tenants and bans that operators change while the broker runs: `barid user`, `barid tenant`,
`barid ban`, and the admin API below them."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from broker import until
from paho_client import Refused
from running import barid, hashed
from test_session_admin import Api

# A hash of the password `secret` that costs little.
CHEAP = ("--cost", "device")


class Operator:
    """Runs `barid COMMAND… --admin …` for one broker."""

    def __init__(self, broker):
        self.broker, self.api = broker, Api(broker, "default")

    def run(self, *arguments, **run) -> subprocess.CompletedProcess:
        return barid(*arguments, "--admin", f"127.0.0.1:{self.broker.admin_port}", **run)

    def does(self, *arguments, **run) -> str:
        """What a command prints that must succeed."""
        done = self.run(*arguments, **run)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def fails(self, *arguments, **run) -> str:
        """What a command says that must not succeed."""
        done = self.run(*arguments, **run)
        assert done.returncode != 0 and done.stderr.startswith("barid: "), (done.stdout, done.stderr)
        return done.stderr

    def reads(self, *arguments) -> dict:
        return json.loads(self.does(*arguments, "--json"))

    def add(self, name: str, *options, password: str = "secret") -> str:
        return self.does("user", "add", name, "--password-file", "-", *CHEAP, *options, input=password)

    def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict | None]:
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.admin_port, timeout=15)
        connection.request(method, path, body=json.dumps(body) if body is not None else None)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text else None


@pytest.fixture
def alone(broker_with):
    """A broker of its own: as soon as it has a user, it refuses clients without one."""
    return broker_with("[storage]\nshards = 4\n")


@pytest.fixture
def operator(alone) -> Operator:
    return Operator(alone)


# ------------------------------------------------------------------------------------------------------ users

def test_a_user_is_added_shown_changed_and_removed(operator):
    assert operator.add("acme/ada", "--note", "an ö") == "added acme/ada: may do everything that the rules of its tenant allow\n"
    assert operator.reads("user", "show", "acme/ada")["note"] == "an ö"
    assert "exists already" in (told := operator.fails("user", "add", "acme/ada", "--random")) and "barid user set acme/ada" in told
    rules = ("--deny", "publish:config/#", "--allow", "publish,subscribe:#")
    assert operator.does("user", "set", "acme/ada", *rules) == "changed acme/ada: has 2 rules\n"
    text = operator.does("user", "show", "acme/ada")
    assert re.search(r"^deny +publish +topics config/#$", text, re.MULTILINE)
    assert re.search(r"^allow +publish, subscribe +topics #$", text, re.MULTILINE)
    assert re.search(r"^note +an ö$", text, re.MULTILINE), "what is not named stays"
    assert "everything" in operator.does("user", "set", "acme/ada", "--no-rules", "--note", "")
    assert operator.reads("user", "show", "acme/ada").keys() == {"user", "disabled", "created_at"}
    assert operator.does("user", "disable", "acme/ada") == "disabled acme/ada\n"
    assert operator.reads("user", "show", "acme/ada")["disabled"]
    assert operator.does("user", "enable", "acme/ada") == "enabled acme/ada\n"
    assert "use --yes" in operator.fails("user", "remove", "acme/ada", stdin=subprocess.DEVNULL)
    assert operator.does("user", "remove", "acme/ada", "--yes") == "removed acme/ada\n"
    assert "barid user list" in operator.fails("user", "show", "acme/ada")


def test_limits_of_a_user(operator):
    operator.add("acme/ada", "--limit", "publish_rate=10", "--limit", "max_connections=2", "--allow", "all")
    assert operator.reads("user", "show", "acme/ada")["limits"] == {"publish_rate": 10, "max_connections": 2}
    assert re.search(r"^limit +publish_rate = 10$", operator.does("user", "show", "acme/ada"), re.MULTILINE)
    said = operator.does("user", "set", "acme/ada", "--limit", "publish_rate=default", "--limit", "connect_rate=0")
    assert said == "changed acme/ada: has 1 rule, with connect_rate = 0, max_connections = 2\n"
    operator.does("user", "set", "acme/ada", "--no-rules")
    shown = operator.reads("user", "show", "acme/ada")
    assert shown["limits"] == {"connect_rate": 0, "max_connections": 2} and "rules" not in shown
    assert operator.ask("PATCH", "/v1/users/acme/ada", {"limits": {"connect_rate": None}})[1]["limits"] == {"max_connections": 2}
    assert "limits" not in operator.ask("PATCH", "/v1/users/acme/ada", {"limits": None})[1]
    for wrong, says in (("user_publish_rate=1", "for one user it is `publish_rate`"), ("publish_rate=x", "invalid type"),
                        ("publish_rate=-1", "invalid value")):
        assert says in operator.fails("user", "set", "acme/ada", f"--limit={wrong}")
    shown = operator.reads("user", "show", "acme/ada")
    assert "limits" not in shown, "what is refused changes nothing"


def test_a_random_password_is_printed_once_and_nowhere_else(operator, alone):
    done = operator.run("user", "add", "acme/pump", "--random")
    added, _, warning = done.stderr.partition("\n")
    assert done.returncode == 0 and added == "added acme/pump: may do everything that the rules of its tenant allow"
    assert "until now any client could connect" in warning, "it is the first user"
    assert operator.run("user", "add", "acme/other", "--random").stderr.count("\n") == 1
    assert re.fullmatch(r"[\w-]{24}\n", done.stdout)
    answer = operator.reads("user", "set", "acme/pump", "--random")
    assert len(answer["password"]) == 24 and answer["password"] != done.stdout.strip()
    everything = operator.does("user", "list", "--json") + operator.does("user", "show", "acme/pump") + alone.stderr
    for secret in (done.stdout.strip(), answer["password"], "$argon2"):
        assert secret not in everything


def test_passwords_come_from_files_and_hashes(operator, tmp_path):
    (tmp_path / "password").write_text("first line\nsecond line\n")
    operator.does("user", "add", "acme/a", "--password-file", tmp_path / "password", *CHEAP)
    operator.does("user", "add", "acme/b", "--password-hash", hashed("secret"))
    assert "no terminal" in operator.fails("user", "add", "acme/c", stdin=subprocess.DEVNULL)
    assert "the password is empty" in operator.fails("user", "add", "acme/c", "--password-file", "-", input="\n")
    assert "--password-hash" in operator.fails("user", "add", "acme/c", "--password-hash", "secret")
    assert "reading the password from" in operator.fails("user", "add", "acme/c", "--password-file", tmp_path / "none")
    assert "--cost and --scram are for a new password" in operator.fails("user", "set", "acme/a", *CHEAP)
    assert "nothing to change" in operator.fails("user", "set", "acme/a")
    assert [user["user"] for user in operator.reads("user", "list")["users"]] == ["acme/a", "acme/b"]


def test_rules_come_from_a_file(operator, tmp_path):
    file = tmp_path / "rules.json"
    rules = [{"deny": "publish", "topics": ["config/#"], "retain": True}, {"allow": ["read"], "keys": ["a*"]}]
    file.write_text(json.dumps(rules))
    operator.add("acme/a", "--rules", file)
    assert operator.reads("user", "show", "acme/a")["rules"] == rules
    file.write_text(json.dumps({"publish": ["a"], "subscribe": []}))
    changed = operator.reads("user", "set", "acme/a", "--rules", file)
    assert (changed["publish"], changed["subscribe"], changed["rules"]) == (["a"], [], rules), "what the file does not name stays"
    file.write_text(json.dumps([{"allow": "publish", "topics": ["a/#/b"]}]))
    assert "not a topic filter" in operator.fails("user", "set", "acme/a", "--rules", file)
    for wrong, says in (("{", "is not JSON"), ("7", "neither a list"), ('{"rule": []}', "unknown member `rule`")):
        file.write_text(wrong)
        assert says in operator.fails("user", "set", "acme/a", "--rules", file)


@pytest.mark.parametrize("arguments, says", [
    (("add", "a b/c", "--random"), "cannot contain"), (("add", "acme/", "--random"), "is empty"),
    (("add", "acme/a", "--random", "--allow", "fly"), "no action"), (("add", "acme/a", "--random", "--password-file", "x"), "cannot be used"),
    (("add", "acme/a", "--random", "--allow", "all", "--rules", "x"), "cannot be used"),
])
def test_what_cannot_be_is_refused_before_anything_is_sent(operator, arguments, says):
    done = operator.run("user", *arguments)
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_users_are_listed_in_pages(operator):
    for number in range(25):
        status, _ = operator.ask("PUT", f"/v1/users/acme/{number:03}", {"password": "secret", "cost": "device"})
        assert status == 201
    operator.add("zeta/a")
    of_acme = [f"acme/{number:03}" for number in range(25)]
    assert [user["user"] for user in operator.reads("user", "list", "--tenant", "acme")["users"]] == of_acme
    page = operator.reads("user", "list", "--limit", 10, "--after", "acme/003")
    assert [user["user"] for user in page["users"]] == of_acme[4:14] and page["next"] == "acme/013"
    text = operator.does("user", "list", "--limit", 2)
    assert text.splitlines()[0].split() == ["USER", "LOGIN", "RIGHTS", "LIMITS", "CREATED", "NOTE"] and text.endswith("raise --limit\n")
    assert operator.does("user", "list", "--tenant", "none") == "no users\n"


def test_every_change_is_logged_and_no_secret(operator, alone):
    operator.add("acme/a", password="hush hush")
    operator.does("user", "disable", "acme/a")
    operator.does("user", "remove", "acme/a", "--yes")
    operator.does("tenant", "set", "acme", "--limit", "max_connections=5")
    operator.does("ban", "add", "--user", "acme/a", "--reason", "stolen")
    for line in (r'created a user by=127.0.0.1:\d+ user="acme/a"', r'changed a user by=.* user="acme/a" disabled=true',
                 r'removed a user by=.* user="acme/a"', r'settings of a tenant by=.* tenant="acme"',
                 r'made a ban by=.* ban="acme/\w{8}" user="acme/a" reason="stolen"'):
        assert re.search(line, alone.stderr), line
    assert "hush" not in alone.stderr and "$argon2" not in alone.stderr


@pytest.mark.parametrize("engine", ["log", "lsm"])
def test_what_was_answered_survives_a_kill(broker_with, engine):
    """Users are added from several threads, until the broker is killed in the middle."""
    alone = broker_with(f'[storage]\nshards = 4\nengine = "{engine}"\n')
    operator = Operator(alone)
    added, failed = [], []

    def add(thread: int) -> None:
        for number in range(10_000):
            name = f"t{thread}/{number}"
            try:
                status, _ = operator.ask("PUT", f"/v1/users/{name}", {"password": "secret", "cost": "device"})
            except OSError:
                failed.append(name)
                return
            assert status == 201
            added.append(name)

    with ThreadPoolExecutor(6) as threads:
        adding = [threads.submit(add, thread) for thread in range(6)]
        until(lambda: len(added) > 50)
        alone.kill9()
        for one in adding:
            one.result()
    alone.restart()
    found = {user["user"] for user in operator.reads("user", "list", "--limit", 100_000)["users"]}
    assert set(added) <= found <= set(added) | set(failed)


def test_a_backup_has_the_users(operator, alone, tmp_path):
    operator.add("acme/a", "--note", "backed up")
    operator.does("tenant", "set", "acme", "--limit", "max_qos=1")
    operator.does("ban", "add", "--address", "192.0.2.1")
    operator.does("backup", tmp_path)
    operator.does("user", "remove", "acme/a", "--yes")
    alone.stop()
    for command in ("restore", tmp_path), ("doctor",):
        done = barid(*command, "--data-dir", alone.directory / "restored")
        assert done.returncode == 0, done.stdout + done.stderr
    (alone.directory / "data").rename(alone.directory / "before")
    (alone.directory / "restored").rename(alone.directory / "data")
    alone.start()
    assert operator.reads("user", "show", "acme/a")["note"] == "backed up"
    assert operator.reads("tenant", "show", "acme")["settings"] == {"limits": {"max_qos": 1}}
    assert [ban["address"] for ban in operator.reads("ban", "list")["bans"]] == ["192.0.2.1"]


# ------------------------------------------------------------------------------------------------------ tenants

def test_a_tenant_gets_limits_rules_and_back_ends(operator, alone):
    assert "no tenant" in operator.fails("tenant", "show", "acme")
    said = operator.does("tenant", "set", "acme", "--limit", "max_entities=1", "--limit", "queue_overflow=drop-oldest",
                         "--auth", "store", "--deny", "publish:config/#", "--allow", "all")
    assert said == "changed acme: max_entities is 1, queue_overflow is drop-oldest, its back ends are store, it has 2 rules\n"
    shown = operator.reads("tenant", "show", "acme")
    assert shown["settings"] == {"limits": {"max_entities": 1, "queue_overflow": "drop-oldest"}, "auth": ["store"],
                                 "rules": [{"deny": "publish", "topics": ["config/#"]}, {"allow": "all"}]}
    alone.kill9()
    alone.restart()
    assert operator.reads("tenant", "show", "acme")["settings"] == shown["settings"]
    operator.does("queue", "create", "a", "--tenant", "acme")
    assert "max_entities" in operator.fails("queue", "create", "b", "--tenant", "acme")
    table = [line.split() for line in operator.does("tenant", "show", "acme").partition("\n\nLIMIT")[2].splitlines()]
    assert table[0] == ["VALUE", "USED", "REFUSED", "WAITED"]
    assert ["max_entities", "1", "1", "1", "-"] in table and ["queue_overflow", "drop-oldest", "-", "-", "-"] in table
    assert "max_qos" not in str(table), "it is at its default"
    said = operator.does("tenant", "set", "acme", "--no-limit", "max_entities", "--no-auth", "--no-rules")
    assert said == ("changed acme: max_entities is that of the configuration, its back ends are those of the configuration, "
                    "it has no rules\n")
    operator.does("queue", "create", "b", "--tenant", "acme")
    assert operator.reads("tenant", "show", "acme")["settings"] == {"limits": {"queue_overflow": "drop-oldest"}}
    listed = {tenant["name"]: tenant["has_settings"] for tenant in operator.reads("tenant", "list")["tenants"]}
    assert listed == {"acme": True, "default": False}
    operator.does("tenant", "remove", "acme", "--yes")
    assert operator.reads("tenant", "show", "acme")["settings"] is None, "its queues stay"
    assert "has no settings" in operator.fails("tenant", "remove", "acme", "--yes")


def test_a_tenant_is_shown_with_all_limits_in_force(broker_with):
    """Wherever they come from. The answer can be sent back."""
    operator = Operator(broker_with("[limits]\nmax_sessions = 500\n[tenants.acme.limits]\nmax_qos = 1\n"))
    operator.does("tenant", "set", "acme", "--limit", "max_connections=50", "--limit", "max_qos=default")
    shown = operator.reads("tenant", "show", "acme")
    in_force = shown["limits_in_force"]
    assert (in_force["max_sessions"], in_force["max_qos"], in_force["max_connections"]) == (500, 1, 50)
    assert len(in_force) > 40 and in_force["queue_overflow"] == "drop-newest"
    assert shown["quotas"] == {}, "the tenant does not exist at present"
    assert operator.ask("PUT", "/v1/tenants/acme", shown)[0] == 200
    operator.does("queue", "create", "a", "--tenant", "acme")
    shown = operator.reads("tenant", "show", "acme")
    assert shown["quotas"]["max_sessions"] == {"limit": 500, "used": 0, "refused": 0, "throttled_seconds": None}
    assert shown["quotas"]["max_entities"]["used"] == 1 and "publish_rate" not in shown["quotas"]
    assert operator.reads("tenant", "show", "default")["quotas"]["max_tenants"]["used"] == 2
    assert operator.ask("PUT", "/v1/tenants/acme", shown)[0] == 200


@pytest.mark.parametrize("option, says", [
    ("--limit=max_qos=3", "max_qos is 3; the maximum is 2"), ("--limit=max_fun=3", "unknown field `max_fun`"),
    ("--limit=max_qos=x", "invalid type"), ("--limit=durability=replicated", "needs a cluster"),
    ("--auth=store,store", "twice"), ("--allow=publish:a/#/b", "not a topic filter"),
])
def test_wrong_settings_are_refused_with_a_sentence(operator, option, says):
    assert says in operator.fails("tenant", "set", "acme", option)
    assert "no tenant" in operator.fails("tenant", "show", "acme")


def test_a_limit_is_in_force_for_connected_clients(operator, alone, paho):
    first = paho(to=alone, tenant="acme")
    operator.does("tenant", "set", "acme", "--limit", "max_connections=1")
    with pytest.raises(Refused):
        paho(to=alone, tenant="acme")
    operator.does("tenant", "set", "acme", "--limit", "max_connections=2")
    assert paho(to=alone, tenant="acme").client.is_connected() and first.client.is_connected()


# ------------------------------------------------------------------------------------------------------ bans

def test_bans_are_made_listed_and_removed(operator, alone):
    assert operator.does("ban", "list") == "no bans\n"
    said = operator.does("ban", "add", "--user", "acme/ada", "--for", "10m", "--reason", "lost")
    user = re.fullmatch(r"banned user acme/ada: (acme/\w{8}) is the id of the ban\n", said)[1]
    client = operator.reads("ban", "add", "--client", "c")
    address = operator.reads("ban", "add", "--address", "192.0.2.7/24")
    assert (client["tenant"], client["until"], address["address"]) == ("default", None, "192.0.2.0/24")
    listed = operator.does("ban", "list")
    assert re.search(rf"^{user} +user acme/ada +in 10m +lost$", listed, re.MULTILINE), listed
    assert re.search(r" client c of default +never$", listed, re.MULTILINE), listed
    assert [ban["id"] for ban in operator.reads("ban", "list", "--tenant", "acme")["bans"]] == [user]
    alone.kill9()
    alone.restart()
    assert len(operator.reads("ban", "list")["bans"]) == 3
    removed = operator.does("ban", "remove", user, client["id"])
    assert removed == "removed the ban of user acme/ada\nremoved the ban of client c of default\n"
    assert "barid ban list" in operator.fails("ban", "remove", user)
    assert [ban["id"] for ban in operator.reads("ban", "list")["bans"]] == [address["id"]]


def test_bans_end_and_leave_the_store(operator, alone):
    for _ in range(3):
        operator.does("ban", "add", "--address", "192.0.2.1", "--for", "1s")
    until(lambda: operator.does("ban", "list") == "no bans\n", 5)
    operator.does("ban", "add", "--address", "192.0.2.2")
    assert alone.metric(r'^barid_managed_objects\{kind="ban"\}') == 1


@pytest.mark.parametrize("body, says", [
    ({}, "one `user`, one `client` or one `address`"), ({"address": "nowhere"}, "neither an address nor a network"),
    ({"client": "c"}, "needs the `tenant`"), ({"user": "acme/a", "for_seconds": 0}, "greater than 0"),
    ({"user": "acme/a", "until": "tomorrow"}, "unknown field `until`"), ({"user": "acme/a", "reason": "x" * 300}, "at most 256 bytes"),
])
def test_a_wrong_ban_is_refused_with_a_sentence(operator, body, says):
    status, answer = operator.ask("POST", "/v1/bans", body)
    assert status == 400 and says in answer["error"], answer


# ------------------------------------------------------------------------------------------------------ logins

def test_an_added_user_logs_in_and_others_do_not(operator, alone, paho, version):
    assert paho(to=alone, version=version).client.is_connected(), "without users anybody may connect"
    operator.add("acme/ada")
    assert paho(to=alone, version=version, username="acme/ada", password="secret").client.is_connected()
    for name, password in (("acme/ada", "wrong"), ("acme/bob", "secret"), (None, None)):
        with pytest.raises(Refused):
            paho(to=alone, version=version, username=name, password=password)
    operator.does("user", "remove", "acme/ada", "--yes")
    alone.restart()
    with pytest.raises(Refused):
        paho(to=alone, version=version)


def test_a_disabled_user_is_out_within_a_second(operator, alone, paho):
    operator.add("acme/ada")
    ada = paho(to=alone, username="acme/ada", password="secret")
    operator.does("user", "disable", "acme/ada")
    begun = time.monotonic()
    until(lambda: not ada.client.is_connected(), 5)
    assert time.monotonic() - begun < 1.5
    with pytest.raises(Refused):
        paho(to=alone, username="acme/ada", password="secret")
    operator.does("user", "enable", "acme/ada")
    assert paho(to=alone, username="acme/ada", password="secret").client.is_connected()


def test_a_banned_client_is_out_until_the_ban_ends(operator, alone, paho):
    one = paho("banned", to=alone, tenant="acme")
    other = paho("banned", to=alone, tenant="zeta")
    operator.does("ban", "add", "--client", "banned", "--tenant", "acme", "--for", "3s")
    until(lambda: not one.client.is_connected(), 2)
    with pytest.raises(Refused):
        paho("banned", to=alone, tenant="acme")
    assert other.client.is_connected(), "another tenant has a client of the same name"
    time.sleep(3)
    assert paho("banned", to=alone, tenant="acme").client.is_connected()


# ---------------------------------------------------------------------------------- tenants without users

def test_rules_of_a_tenant_hold_for_clients_without_users(operator, connect):
    operator.does("tenant", "set", "acme", "--deny", "publish:config/#", "--allow", "all")
    client = connect(to=operator.broker, tenant="acme")
    assert client.publish("config/a", b"1", 1).reason == 0x87
    assert client.publish("other/a", b"1", 1).reason in (0, 0x10)
    operator.does("tenant", "set", "acme", "--deny", "publish:other/#", "--allow", "all")
    until(lambda: client.publish("other/a", b"1", 1).reason == 0x87)
    assert client.publish("config/a", b"1", 1).reason in (0, 0x10)
    assert connect(to=operator.broker, tenant="globex").publish("config/a", b"1", 1).reason in (0, 0x10)


def test_a_back_end_that_does_not_exist_is_refused(operator):
    assert "there is no back end `nosuch`; the configuration has `store`" in operator.fails("tenant", "set", "acme", "--auth", "nosuch")
    assert "no back end `file`" in operator.fails("tenant", "set", "acme", "--auth", "file")
    operator.does("tenant", "set", "acme", "--auth", "store")
