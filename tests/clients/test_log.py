"""The log as JSON."""

from __future__ import annotations

import json
import re

import pytest

import wire
from broker import until


@pytest.fixture
def logging(broker_with):
    return broker_with('[log]\nlevel = "debug"\nformat = "json"\n')


def lines(broker) -> list[dict]:
    # The file has standard output as well: the addresses. Names may have what Python takes for the end of a line.
    return [json.loads(line) for line in broker.stderr.split("\n") if line.startswith("{")]


def test_every_line_is_an_object_with_the_same_first_fields(logging):
    client = wire.Client(logging.address)
    hostile = 'a"}\\\n{"level":"ERROR","message":"forged"}'.replace("\n", "\u2028")
    client.connect(hostile, username="acme/u")
    client.disconnect()
    until(lambda: any(line["message"] == "the client disconnected" for line in lines(logging)))
    for line in lines(logging):
        assert list(line)[:3] == ["timestamp", "level", "message"], line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", line["timestamp"]) and line["level"] in ("INFO", "DEBUG")
    (connected,) = (line for line in lines(logging) if line["message"] == "connected")
    assert (connected["tenant"], connected["client"], connected["listener"]) == ("acme", hostile, "mqtt") and ":" in connected["peer"]
    (recovered,) = (line for line in lines(logging) if line["message"] == "recovered the data directory")
    assert recovered["sessions"] == 0 and isinstance(recovered["millis"], int)


def test_another_format_takes_effect_after_a_restart(logging):
    logging.reload('[log]\nlevel = "info"\nformat = "text"\n')
    said = {line["message"] for line in lines(logging)}
    assert "changed, but takes effect only after a restart: log.format" in said and "reloaded: log" in said
