"""Takes the pictures of docs/operating/dashboard.md: a small plant, watched for three minutes.

    .venv/bin/python tests/dashboard/pictures.py
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(Path(__file__).parent)]

import wire
from broker import Broker
from browser import Browser
from operating import Admin, bury

PICTURES = ROOT / "docs" / "operating" / "dashboard"
SECONDS = 180


def plant(broker: Broker) -> None:
    """Devices of three tenants, a service, and a queue with dead letters."""
    admin = Admin(broker)
    for tenant, limits in {"plant-1": {"max_sessions": 100}, "plant-2": {}, "harbour": {}}.items():
        admin.does("PATCH", f"/v1/tenants/{tenant}", {"limits": limits})
    admin.does("PUT", "/v1/tenants/default/queues/orders", {"MaxDeliveryCount": 3})
    bury(broker, "orders", *(f'{{"order": {number}}}' for number in range(4711, 4716)), reason="UnknownCustomer")
    devices = []
    for tenant in ("plant-1", "plant-2", "harbour", None):
        for number in range(1, 13):
            device = wire.Client(broker.address)
            device.connect(f"sensor-{number}", properties={"session_expiry_interval": 600},
                           **({"username": f"{tenant}/sensor-{number}"} if tenant else {}))
            device.subscribe(f"line-{number % 3 + 1}/commands", qos=1)
            devices.append(device)
    watcher = wire.Client(broker.address)
    watcher.connect("display")
    watcher.subscribe("line-1/+/temperature")

    def read() -> None:
        try:
            while True:
                watcher.recv(timeout=600)
        except (OSError, wire.Closed, TimeoutError):
            pass

    threading.Thread(target=read, daemon=True).start()

    def work() -> None:
        try:
            for tick in range(SECONDS * 20):
                for _ in range(round(6 + 5 * math.sin(tick / 300) + random.random() * 3)):
                    number = random.randrange(len(devices))
                    devices[number].publish(f"line-{number % 3 + 1}/{number % 12 + 1}/temperature", b"21.5", retain=tick < 40)
                time.sleep(0.05)
        except OSError:
            pass

    threading.Thread(target=work, daemon=True).start()


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    broker, browser = Broker(), Browser("--force-device-scale-factor=1")
    try:
        plant(broker)
        time.sleep(SECONDS - 10)
        browser.open(broker)
        for theme in ("light", "dark"):
            browser.fill("Theme", theme.capitalize())
            for name, view, ready in (("overview", ("overview",), "MQTT messages"), ("clients", ("clients", "plant-1"), "sensor-9"),
                                      ("queue", ("queue", "default", "orders"), "Transfer dead letters")):
                browser.go(*view)
                browser.shows(ready)
                if name == "queue":
                    browser.fill("Part", "Dead letters")
                    browser.shows("UnknownCustomer")
                time.sleep(1)
                browser.driver.save_screenshot(str(PICTURES / f"{name}-{theme}.png"))
    finally:
        browser.close()
        broker.close()


if __name__ == "__main__":
    main()
