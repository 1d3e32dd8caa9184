"""What the management tests of azure-servicebus import from the repository of the SDK, for a broker on this machine.

The address of the broker is in NAMESPACE, and the certificate of its authority in REQUESTS_CA_BUNDLE."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os

from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus.aio._base_handler_async import ServiceBusSharedKeyCredential as AsyncSharedKeyCredential

NAMESPACE = os.environ["NAMESPACE"]
KEY_NAME, KEY = os.environ["KEY_NAME"], os.environ["KEY"]
GIVEN = {
    "servicebus_connection_str": f"Endpoint=sb://{NAMESPACE}/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}",
    "servicebus_fully_qualified_namespace": NAMESPACE,
    "servicebus_sas_policy": KEY_NAME,
    "servicebus_sas_key": KEY,
}


class AzureMgmtRecordedTestCase:
    """The tests talk to a real broker, so nothing is recorded."""


class CachedResourceGroupPreparer:
    """Imported, and not used."""


def recorded_by_proxy(test):
    return test


def set_custom_default_matcher(*_, **__):
    """Would tell the recorder what to compare."""


def get_credential(is_async: bool = False):
    """A key instead of a token of Azure's directory."""
    return (AsyncSharedKeyCredential if is_async else ServiceBusSharedKeyCredential)(KEY_NAME, KEY)


def PowerShellPreparer(*_, **__):
    """Gives a test those of its parameters that Azure's deployment gives it, and waits for one that is asynchronous."""
    def prepare(test):
        asked = inspect.signature(test).parameters
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in asked.values())
        given = {name: value for name, value in GIVEN.items() if takes_all or name in asked}

        @functools.wraps(test)
        def prepared(self):
            done = test(self, **given)
            return asyncio.run(done) if inspect.iscoroutine(done) else done

        # pytest takes parameters for fixtures.
        prepared.__signature__ = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)])
        return prepared
    return prepare
