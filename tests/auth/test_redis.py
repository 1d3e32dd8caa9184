"""A shared cache in Redis in front of MariaDB: what it saves, and that nobody who writes to it can do more than empty it."""

from __future__ import annotations

import subprocess
import time

import pytest

import wire
from broker import BINARY, until
from answers import ACCEPTED, DENIED, UNAVAILABLE

V5 = wire.V5


def users_of(redis) -> list[bytes]:
    return sorted(redis.ask("KEYS", "barid:user:*"))


@pytest.fixture
def warm(cached_settings, broker_with, mariadb, redis, login):
    """A broker that remembers nothing itself, when acme/ada has logged in, and Redis has her."""
    running = broker_with(cached_settings.toml())
    mariadb.add("acme/ada")

    def is_cached() -> bool:
        assert login(running, "acme/ada").connack.reason == ACCEPTED
        return redis.ask("EXISTS", "barid:user:acme/ada", "barid:fast:acme/ada") == 2

    until(is_cached)
    return running


def test_a_second_broker_asks_neither_the_database_nor_for_time(warm, cached_settings, broker_with, mariadb, login):
    other = broker_with(cached_settings.toml())
    assert login(other, "acme/ada").connack.reason == ACCEPTED
    before = mariadb.look_ups()
    for _ in range(10):
        assert login(other, "acme/ada").connack.reason == ACCEPTED
        assert login(other, "acme/ada", "wrong").connack.reason == DENIED[V5]
    assert mariadb.look_ups() == before


def test_an_unknown_name_is_looked_up_once_in_ten_seconds(warm, mariadb, login):
    login(warm, "acme/nobody")
    time.sleep(0.2)
    before = mariadb.look_ups()
    for _ in range(5):
        assert login(warm, "acme/nobody").connack.reason == DENIED[V5]
    assert mariadb.look_ups() == before


def test_without_the_database_who_is_in_redis_gets_in(warm, mariadb, login):
    mariadb.add("acme/bob")
    mariadb.server.kill()
    assert login(warm, "acme/ada").connack.reason == ACCEPTED
    assert login(warm, "acme/ada", "wrong").connack.reason == DENIED[V5]
    assert login(warm, "acme/bob").connack.reason == UNAVAILABLE[V5]


@pytest.mark.parametrize("harm", ["kill", "pause"])
def test_without_redis_the_database_is_asked(warm, mariadb, redis, login, harm):
    mariadb.add("acme/bob")
    getattr(redis, harm)()
    took = []
    for _ in range(20):
        began = time.monotonic()
        assert login(warm, "acme/ada").connack.reason == ACCEPTED
        assert login(warm, "acme/bob").connack.reason == ACCEPTED
        assert login(warm, "acme/bob", "wrong").connack.reason == DENIED[V5]
        took.append(time.monotonic() - began)
    assert sorted(took)[-2] < 0.2, "only the first one waits for Redis"
    until(lambda: "Redis fails" in warm.stderr and "main" in warm.stderr)
    redis.resume() if harm == "pause" else redis.start()
    until(lambda: "Redis is used again" in warm.stderr)
    until(lambda: login(warm, "acme/bob").connack.reason == ACCEPTED and b"barid:user:acme/bob" in users_of(redis))


def test_a_flushed_redis_is_filled_again(warm, redis, login):
    redis.ask("FLUSHALL")
    until(lambda: login(warm, "acme/ada").connack.reason == ACCEPTED and users_of(redis) == [b"barid:user:acme/ada"])


FORGED = [b'{"password": "$argon2id$v=19$m=256,t=1,p=1$c2FsdHNhbHQ$AAAA"}', b"\x01" + bytes(200), b"\x01", b"\0" * 100, b"x" * 1_000_000]


@pytest.mark.parametrize("value", FORGED, ids=range(len(FORGED)))
def test_forged_values_are_not_used(warm, redis, login, value):
    redis.ask("SET", "barid:user:acme/ada", value)
    redis.ask("SET", "barid:fast:acme/ada", value)
    redis.ask("SET", "barid:user:acme/eve", value)
    assert login(warm, "acme/ada").connack.reason == ACCEPTED
    assert login(warm, "acme/ada", "wrong").connack.reason == DENIED[V5]
    assert login(warm, "acme/eve").connack.reason == DENIED[V5]
    until(lambda: "not used" in warm.stderr)
    until(lambda: login(warm, "acme/ada").connack.reason == ACCEPTED and redis.ask("STRLEN", "barid:user:acme/ada") not in (0, len(value)))


@pytest.mark.parametrize("kind", ["LPUSH", "SADD"])
def test_a_value_of_another_type_is_not_used(warm, redis, login, kind):
    redis.ask("DEL", "barid:user:acme/ada", "barid:fast:acme/ada")
    redis.ask(kind, "barid:user:acme/ada", "x")
    redis.ask(kind, "barid:fast:acme/ada", "x")
    assert login(warm, "acme/ada").connack.reason == ACCEPTED
    assert login(warm, "acme/ada", "wrong").connack.reason == DENIED[V5]


def test_values_are_valid_for_their_user_only(warm, mariadb, redis, login):
    """Who may write to Redis copies the values of a user with a known password to other users, also of another tenant."""
    for victim in ("acme/root", "globex/ada"):
        mariadb.add(victim, "unknown")
        for kind in ("user", "fast"):
            redis.ask("SET", f"barid:{kind}:{victim}", redis.ask("GET", f"barid:{kind}:acme/ada"))
        assert login(warm, victim).connack.reason == DENIED[V5]
        assert login(warm, victim, "unknown").connack.reason == ACCEPTED
    for stranger in ("acme/stranger", "globex/stranger"):
        for kind in ("user", "fast"):
            redis.ask("SET", f"barid:{kind}:{stranger}", redis.ask("GET", f"barid:{kind}:acme/ada"))
        assert login(warm, stranger).connack.reason == DENIED[V5]


def test_a_broker_with_another_secret_uses_nothing(warm, cached_settings, broker_with, mariadb, login):
    other = broker_with(cached_settings.toml(secret="another secret of more than 32 bytes"))
    before = mariadb.look_ups()
    assert login(other, "acme/ada").connack.reason == ACCEPTED
    assert mariadb.look_ups() > before
    until(lambda: "another secret" in other.stderr)


@pytest.mark.parametrize("message", ["acme/ada", "acme/*", "*"])
def test_what_is_published_concerns_who_is_connected(cached_settings, broker_with, mariadb, redis, login, message):
    """Without `changes`, whoever changes a user says so."""
    running = broker_with(cached_settings.toml(remembered=600, grace=600))
    mariadb.add("acme/ada")
    mariadb.add("acme/bob")
    ada, bob = login(running, "acme/ada"), login(running, "acme/bob")
    mariadb.set("acme/ada", "enabled", "0")
    assert login(running, "acme/ada", client_id="again").connack.reason == ACCEPTED, "nobody has said so"
    redis.ask("SET", "barid:user:acme/ada", "", "EX", 10)
    began = time.monotonic()
    assert redis.ask("PUBLISH", "barid:invalidate", message) == 1
    ada.expect_refused(0x87, 0x98, timeout=5)
    assert time.monotonic() - began < 1
    assert login(running, "acme/ada").connack.reason == DENIED[V5]
    bob.ping()


def tell(running, *who: str) -> subprocess.CompletedProcess:
    line = [BINARY, "auth", "changed", *who, "--admin", f"127.0.0.1:{running.admin_port}"]
    return subprocess.run(line, capture_output=True, text=True, timeout=15)


@pytest.mark.parametrize("who", [("acme/ada",), ("--tenant", "acme"), ("--all",)])
def test_an_operator_tells_all_brokers(cached_settings, broker_with, mariadb, redis, login, who):
    one, other = (broker_with(cached_settings.toml(remembered=600, grace=600)) for _ in range(2))
    mariadb.add("acme/ada")
    clients = [login(one, "acme/ada"), login(other, "acme/ada")]
    mariadb.set("acme/ada", "enabled", "0")
    done = tell(one, *who)
    assert done.returncode == 0 and done.stdout.endswith(": asked again\n"), done
    for client in clients:
        client.expect_refused(0x87, 0x98, timeout=2)
    for running in (one, other):
        assert login(running, "acme/ada").connack.reason == DENIED[V5]
        assert running.metric(r'^barid_login_cache_up\{backend="main"\}') == 1
        assert running.metric(r'^barid_login_cache_total\{backend="main",outcome="miss"\}') >= 1


def test_an_operator_is_told_that_others_could_not_be_told(warm, redis, login):
    redis.kill()
    done = tell(warm, "acme/ada")
    assert done.returncode != 0 and "other brokers could not be told" in done.stderr, done
    for wrong in (("a b/c",), ("--tenant", "a b"), ()):
        assert tell(warm, *wrong).returncode != 0


def test_an_old_value_that_is_written_back_lets_nobody_in(warm, mariadb, redis, login):
    old = redis.ask("GET", "barid:user:acme/ada")
    mariadb.set("acme/ada", "enabled", "0")
    redis.ask("PUBLISH", "barid:invalidate", "acme/ada")
    for _ in range(5):
        time.sleep(0.3)
        redis.ask("SET", "barid:user:acme/ada", old)
        assert login(warm, "acme/ada").connack.reason == DENIED[V5]


NAMES = ["acme/a b", "acme/*", "acme/a?c", "acme/[a-z]", "acme/\\", "acme/a/b", "acme/user:x", "acme/ü☃𝄞", "acme/'\"", "acme/$5", "acme/a:b"]


def test_names_of_all_kinds_have_keys_of_their_own(cached_settings, broker_with, mariadb, redis, login):
    """No name is a pattern or the key of another one. Names with control characters get no further than CONNECT."""
    running = broker_with(cached_settings.toml())
    for number, name in enumerate(NAMES):
        mariadb.add(name, f"secret {number}")
    for _ in range(2):
        for number, name in enumerate(NAMES):
            for other in range(len(NAMES)):
                client = login(running, name, f"secret {other}", client_id=f"c{number}")
                assert (client.connack.reason == ACCEPTED) == (number == other), name
    until(lambda: {f"barid:user:{name}".encode() for name in NAMES} <= set(users_of(redis)))


def test_a_fleet_comes_back_fast(warm, cached_settings, broker_with, mariadb, login):
    """The verification of a costly hash is done once, for all brokers."""
    costly = subprocess.run([BINARY, "passwd", "--stdin"], input="secret", capture_output=True, text=True, check=True).stdout.strip()
    mariadb.add("acme/slow")
    mariadb.set("acme/slow", "password_hash", f"'{costly}'")
    until(lambda: login(warm, "acme/slow").connack.reason == ACCEPTED)
    time.sleep(0.5)
    other = broker_with(cached_settings.toml())
    login(other, "acme/ada")
    before = other.cpu()
    for number in range(100):
        assert login(other, "acme/slow", client_id=f"s{number}").connack.reason == ACCEPTED
    assert other.cpu() - before < 0.5, "a verification takes 20 ms"
