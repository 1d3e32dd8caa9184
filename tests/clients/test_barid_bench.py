"""`barid bench` over every transport: what it measures is what `barid pub` would use."""

from __future__ import annotations

import json

import pytest

from running import barid

TRANSPORTS = {
    "tls": ("--cafile", "{ca}"),
    "ws": ("--ws",),
    "wss": ("--ws", "--cafile", "{ca}"),
}
SCENARIOS = {
    "pairs": ("-n", 3, "-q", 2, "--rate", 200),
    "fanout": ("-n", 5, "-q", 1, "--rate", 50),
    "fanin": ("-n", 5, "-q", 0, "--rate", 200),
    "connections": ("-n", 20),
    "state": ("-n", 3, "--in-flight", 5, "--keys", 50),
}


def bench(*arguments) -> dict:
    done = barid("bench", *arguments, "-d", "500ms", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("over", TRANSPORTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_over_every_transport(broker, certificates, scenario, over):
    """Nothing is lost, and messages are larger than one record of TLS or one frame is likely to be."""
    flags = [flag.format(ca=certificates.certificate("ca")) for flag in TRANSPORTS[over]]
    size = () if scenario == "connections" else ("--size", 40_000)
    told = bench(scenario, *SCENARIOS[scenario], *size, "-h", "localhost", "-p", broker.port_of(over), *flags)
    assert told.get("clean", True) and told.get("errors", 0) == 0 and told.get("unanswered", 0) == 0, told


def test_as_many_as_go_through(broker, certificates):
    """Without a rate, full sockets included."""
    for over, flags in TRANSPORTS.items():
        flags = [flag.format(ca=certificates.certificate("ca")) for flag in flags]
        told = bench("pairs", "-n", 2, "-q", 1, "--size", 100_000, "-h", "localhost", "-p", broker.port_of(over), *flags)
        assert told["clean"] and told["sent"] > 20, (over, told)


def test_a_url(broker, certificates):
    told = bench("pairs", "-n", 1, "--rate", 50, "-L", f"wss://localhost:{broker.wss_port}/mqtt", "--cafile", certificates.certificate("ca"))
    assert told["clean"]


def test_who_is_not_trusted(broker, certificates):
    done = barid("bench", "pairs", "-n", 1, "-h", "localhost", "-p", broker.mqtts_port, "--cafile", certificates.certificate("stranger"))
    assert done.returncode == 1 and "--cafile" in done.stderr, done.stderr
    done = barid("bench", "pairs", "-n", 1, "-h", "localhost", "-p", broker.port, "--cafile", certificates.certificate("ca"))
    assert done.returncode == 1 and "TLS" in done.stderr, done.stderr


def test_nobody_listens():
    done = barid("bench", "pairs", "-n", 1, "-h", "127.0.0.1", "-p", 1)
    assert done.returncode == 1 and "refused" in done.stderr, done.stderr
