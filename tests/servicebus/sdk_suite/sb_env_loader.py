"""Stands for the module of this name in the SDK's tests."""

from devtools_testutils import PowerShellPreparer as ServiceBusPreparer  # noqa: F401
