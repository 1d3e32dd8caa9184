"""Metrics of the process, compared with what Linux says about it."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

import wire
from broker import ROOT
from certificates import Certificates


def test_cpu_memory_and_descriptors(broker_with):
    running = broker_with("")
    pid = running._process.pid
    assert running.metric("^process_cpu_seconds_total") == pytest.approx(running.cpu(), abs=0.2)
    assert running.metric("^process_resident_memory_bytes") / (1 << 20) == pytest.approx(running.memory(), rel=0.3)
    assert running.metric("^process_open_fds") == pytest.approx(len(os.listdir(f"/proc/{pid}/fd")), abs=5)
    assert running.metric("^process_max_fds") > 256
    assert running.metric("^process_start_time_seconds") == pytest.approx(time.time(), abs=30)
    memory = {name: int(value) * 1024 for name, value in re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)}
    assert running.metric("^barid_host_memory_bytes") == memory["MemTotal"]
    assert running.metric("^barid_host_memory_available_bytes") == pytest.approx(memory["MemAvailable"], rel=0.3)
    received, sent = (running.metric(f"^process_network_{way}_bytes_total") for way in ("receive", "transmit"))
    busy = running.metric('^barid_host_cpu_seconds_total{state="busy"}')
    one = wire.Client(running.address)
    one.connect()
    one.publish("a", b"x" * 1_000_000, qos=1)
    one.drop()
    # Loopback is one network for all that run here.
    assert running.metric("^process_network_receive_bytes_total") >= received + 1_000_000
    assert running.metric("^process_network_transmit_bytes_total") >= sent + 1_000_000
    assert running.metric('^barid_host_cpu_seconds_total{state="busy"}') >= busy > 0
    version = next(line.split('"')[1] for line in (ROOT / "Cargo.toml").read_text().splitlines() if line.startswith("version"))
    assert running.metric(f'^barid_build_info{{version="{version}"}}') == 1
    assert running.metric("^barid_certificate_expires") == 0, "there is no certificate"


def test_the_expiry_of_the_certificate(broker_with, tmp_path):
    certificates = Certificates(tmp_path)
    running = broker_with(certificates.toml("[listeners]\nmqtts = { address = \"127.0.0.1:0\" }"))
    shown = subprocess.run(["openssl", "x509", "-enddate", "-noout", "-in", certificates.certificate("server")], capture_output=True, text=True, check=True)
    expires = datetime.strptime(shown.stdout.strip().removeprefix("notAfter="), "%b %d %H:%M:%S %Y %Z").replace(tzinfo=timezone.utc)
    assert running.metric("^barid_certificate_expires_timestamp_seconds") == expires.timestamp()


def test_scrapes_beside_retained_messages(broker_with):
    """A scrape that locked the retained messages twice once waited for a publisher that waited for the scrape."""
    running = broker_with("")
    publisher, ended = wire.Client(running.address, wire.V5), threading.Event()
    publisher.connect("retains")

    def publish() -> None:
        while not ended.is_set():
            publisher.publish("retained", b"x", 1, retain=True)

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        for _ in range(4_000):
            assert running.metric(r'^barid_retained_messages\{tenant="default"') <= 1
    finally:
        ended.set()
        publishing.join()
