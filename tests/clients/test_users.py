"""[[users]]: who may connect, and what they may do."""

import signal

import pytest

from broker import until
from paho_client import Refused
from running import barid, hashed


@pytest.fixture(scope="module")
def secret() -> str:
    return hashed("secret")


@pytest.fixture
def guarded(brokers_with, secret):
    return brokers_with(f"""
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


def test_the_block_that_passwd_prints_is_a_user(brokers_with, paho):
    running = brokers_with(hashed("pass word", "acme/new"))
    assert paho(to=running, username="acme/new", password="pass word").client.is_connected()


def test_hashes_are_argon2id_with_a_salt():
    first, second = hashed("x"), hashed("x")
    assert first.startswith("$argon2id$") and first != second


def test_a_device_logs_in_with_a_cheap_hash(brokers_with, paho):
    """The secret is random, so nothing is gained by making it costly to guess."""
    block = barid("passwd", "--stdin", "--cost", "device", "acme/sensor", input="f" * 24)
    assert block.returncode == 0 and not block.stderr, block.stderr
    assert "$argon2id$v=19$m=256,t=1,p=1$" in block.stdout
    running = brokers_with(block.stdout)
    assert paho(to=running, username="acme/sensor", password="f" * 24).client.is_connected()
    with pytest.raises(Refused):
        paho(to=running, username="acme/sensor", password="f" * 23)


def test_a_device_gets_a_random_secret(brokers_with, paho):
    """The secret is shown on standard error, so that the block alone goes to the configuration file."""
    block = barid("passwd", "--cost", "device", "acme/sensor")
    assert block.returncode == 0, block.stderr
    label, secret = block.stderr.splitlines()
    assert "acme/sensor" in label and len(secret) == 24 and secret not in block.stdout
    assert barid("passwd", "--cost", "device", "acme/sensor").stderr.splitlines()[1] != secret
    assert "$argon2id$v=19$m=256,t=1,p=1$" in block.stdout
    running = brokers_with(block.stdout)
    assert paho(to=running, username="acme/sensor", password=secret).client.is_connected()


def test_a_scram_verifier_is_a_password_hash(brokers_with, paho):
    block = barid("passwd", "--stdin", "--scram", "--cost", "device", "acme/sensor", input="f" * 24)
    assert block.returncode == 0 and 'password = "SCRAM-SHA-256$4096:' in block.stdout, block.stderr
    running = brokers_with(block.stdout)
    assert paho(to=running, username="acme/sensor", password="f" * 24).client.is_connected()
    with pytest.raises(Refused):
        paho(to=running, username="acme/sensor", password="f" * 23)


def test_a_cheap_hash_of_a_short_password_is_warned_of():
    done = barid("passwd", "--stdin", "--cost", "device", input="short")
    assert done.returncode == 0 and "warning" in done.stderr and "openssl rand" in done.stderr


@pytest.mark.parametrize("name", ["", "a b/x", "/x", "acme/", "a+b/x", "t" * 65 + "/x", "x\ny", "x" * 65_536], ids=range(8))
def test_no_password_for_who_can_never_log_in(name):
    done = barid("passwd", "--stdin", name, input="secret")
    assert done.returncode != 0 and not done.stdout, done.stdout


def test_a_reload_does_not_replace_one_user_by_another_spelling(broker_with, paho, secret):
    """`x` and `default/x` are one user: neither block may silently take the place of the other."""
    running = broker_with("")
    before = f'[[users]]\nname = "x"\npassword = "{secret}"\n'
    assert "users" in running.reload(before)
    told = len(running.stderr)
    (running.directory / "barid.toml").write_text(before + f'[[users]]\nname = "default/x"\npassword = "{hashed("other")}"\n')
    running.signal(signal.SIGHUP)
    until(lambda: "are one user" in running.stderr[told:])
    assert paho(to=running, username="x", password="secret").client.is_connected()
    with pytest.raises(Refused):
        paho(to=running, username="default/x", password="other")


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
