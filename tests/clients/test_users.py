"""[[users]]: who may connect, and what they may do."""

import pytest

from paho_client import Refused
from running import hashed


@pytest.fixture(scope="module")
def secret() -> str:
    return hashed("secret")


@pytest.fixture
def guarded(broker_with, secret):
    return broker_with(f"""
        [[users]]
        name = "acme/ada"
        password = "{secret}"
        publish = ["up/%c/#", "all/%u"]
        subscribe = ["down/%c/#", "all/#"]
        [[users]]
        name = "globex/ada"
        password = "{hashed("other")}"
    """)


@pytest.mark.parametrize("name, password", [
    ("acme/ada", "wrong"), ("acme/ada", ""), ("acme/ada", None), ("acme/bob", "secret"), ("ada", "secret"),
    ("globex/ada", "secret"), (None, None),
])
def test_only_users_with_their_password_get_in(guarded, paho, version, name, password):
    with pytest.raises(Refused) as refused:
        paho(to=guarded, version=version, username=name, password=password)
    assert refused.value.code in (0x86, 0x87), "bad user name or password, or not authorised"
    assert guarded.metric("^barid_refused_connects_total") == 1


def test_the_block_that_passwd_prints_is_a_user(broker_with, paho):
    running = broker_with(hashed("pass word", "acme/new"))
    assert paho(to=running, username="acme/new", password="pass word").client.is_connected()


def test_hashes_are_argon2id_with_a_salt():
    first, second = hashed("x"), hashed("x")
    assert first.startswith("$argon2id$") and first != second


def test_rules_for_topics(guarded, paho, version):
    """%c is the client identifier, %u the user name; what is not allowed is refused and reaches nobody."""
    ada = paho("sensor7", to=guarded, version=version, username="acme/ada", password="secret")
    assert ada.subscribe("down/sensor7/#", 1) == 1
    assert ada.subscribe("all/#", 1) == 1
    for pattern in ("down/sensor8/#", "down/+/x", "#", "up/sensor7"):
        assert ada.subscribe(pattern, 1) == (0x87 if version == 5 else 0x80), pattern
    ada.publish("all/acme/ada", b"mine", 1)
    assert ada.receive().payload == b"mine"
    for topic in ("all/acme/bob", "down/sensor7/x", "up/sensor8/x"):
        ada.publish(topic, b"forged", 1)
    assert ada.silent()
    assert guarded.metric(r'^barid_unauthorised_total\{tenant="acme"') == 7


def test_a_user_without_rules_may_do_everything_in_its_tenant(guarded, paho):
    everything = paho(to=guarded, username="globex/ada", password="other")
    everything.subscribe("#", 1)
    paho("sensor7", to=guarded, username="acme/ada", password="secret").publish("up/sensor7/x", b"other tenant", 1)
    everything.publish("a/b", b"own", 1)
    assert everything.receive().payload == b"own"
    assert everything.silent()
