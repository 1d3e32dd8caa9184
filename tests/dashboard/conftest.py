"""Fixtures: one browser for all tests, and what it talks to."""

from __future__ import annotations

import pytest

from browser import Browser
from operating import Admin


@pytest.fixture(scope="session")
def chromium():
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def page(chromium):
    """The browser. At the end of a test it has complained about nothing."""
    yield chromium
    complaints = chromium.complaints()
    chromium.driver.get("about:blank")
    assert not complaints, complaints


@pytest.fixture
def admin(broker) -> Admin:
    return Admin(broker)
