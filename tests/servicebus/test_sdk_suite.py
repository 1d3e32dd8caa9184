"""The management tests that the authors of azure-servicebus wrote, against Barid. Its source package has them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as xml
from importlib.metadata import version
from pathlib import Path

import pytest

from administration import Managed
from namespace import KEY, KEY_NAME, config_json

# The tests that expect what Barid does not do, or does otherwise, and why. Each of them has to fail.
NO_KEYS = "an entity has no keys of its own (authorization_rules)"
NO_DURATIONS = "no filter compares durations"
NO_TIERS = "it expects that the tier of the namespace refuses large messages"
EXPECTED = {
    "test_mgmt_queue_create_with_queue_description": NO_KEYS,
    "test_mgmt_queue_update_success": NO_KEYS,
    "test_mgmt_rule_create": NO_DURATIONS,
    "test_mgmt_topic_create_with_topic_description": NO_TIERS,
    "test_async_mgmt_queue_create_with_queue_description": NO_KEYS,
    "test_async_mgmt_rule_create": NO_DURATIONS,
    "test_async_mgmt_topic_create_with_topic_description": NO_TIERS,
    "test_async_mgmt_topic_update_success": NO_KEYS,
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    """The tests, with modules of ours in the place of those that need Azure."""
    directory = tmp_path_factory.mktemp("suite")
    package = f"azure-servicebus=={version('azure-servicebus')}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", directory, package]
    subprocess.run(command, check=True, timeout=300)
    with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
        archive.extractall(directory, filter="data")
    tests = next(directory.glob("*/tests"))
    found = directory / "found"
    shutil.copytree(Path(__file__).parent / "sdk_suite", found)
    for file in [*tests.glob("mgmt_tests/*.py"), *tests.glob("mgmt_tests/async/*.py"), tests / "utilities.py"]:
        shutil.copy(file, found)
    return found


def test_management_tests_of_the_sdk(suite, certificates):
    broker = Managed(config_json({}, {}), certificates)
    environment = os.environ | {
        "NAMESPACE": f"localhost:{broker.management_port}", "KEY_NAME": KEY_NAME, "KEY": KEY,
        "REQUESTS_CA_BUNDLE": str(certificates.certificate("ca")), "SSL_CERT_FILE": str(certificates.certificate("ca")),
    }
    report = suite / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}", "."]
    done = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=300)
    broker.end()
    cases = list(xml.parse(report).iter("testcase"))
    failed = {case.get("name") for case in cases if case.find("failure") is not None or case.find("error") is not None}
    skipped = {case.get("name") for case in cases if case.find("skipped") is not None}
    assert failed == set(EXPECTED), done.stdout[-10_000:]
    assert len(cases) - len(failed) - len(skipped) >= 100, done.stdout[-2_000:]
