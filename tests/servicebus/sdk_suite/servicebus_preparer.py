"""Stands for the module of this name in the SDK's tests, which creates namespaces at Azure."""

from devtools_testutils import NAMESPACE as SERVICEBUS_ENDPOINT_SUFFIX  # noqa: F401
