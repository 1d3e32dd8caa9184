"""A broker that also listens for administration clients of Service Bus, and such clients."""

from __future__ import annotations

import urllib.error
import urllib.request

from azure.servicebus.management import ServiceBusAdministrationClient

import sas
from broker import free_port
from namespace import KEY, KEY_NAME, Namespace


class Managed(Namespace):
    """`barid serve --management`. The same port accepts TLS if there are certificates."""

    def arguments(self) -> list:
        self.management_port = free_port()
        return [*super().arguments(), "--management", f"127.0.0.1:{self.management_port}"]

    def administrator(self, name: str = KEY_NAME, key: str = KEY) -> ServiceBusAdministrationClient:
        """Connects over HTTP. The client has no option for that, so users of the emulator change its address."""
        host = f"127.0.0.1:{self.management_port}"
        client = ServiceBusAdministrationClient.from_connection_string(
            f"Endpoint=sb://{host};SharedAccessKeyName={name};SharedAccessKey={key};UseDevelopmentEmulator=true;",
            retry_total=0)
        client._impl._client._base_url = f"http://{host}"
        return client

    def ask(self, path: str, method: str = "GET", body: bytes | str | None = None, *, token: str | None = None,
            scheme: str = "http", context=None, **headers: str) -> tuple[int, str]:
        """Returns the status and the body of the answer to a request, by default one that may do everything."""
        host = f"{scheme}://127.0.0.1:{self.management_port}"
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is None:
            token = sas.token(host, KEY_NAME, KEY, 4_000_000_000)
        if token:
            headers["Authorization"] = token
        body = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(host + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=15, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def entry(description: str) -> str:
    """An entry, as clients send them."""
    return ('<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">' + description + "</content></entry>")


def described(kind: str, properties: str = "") -> str:
    return entry(f'<{kind}Description xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"'
                 f' xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{properties}</{kind}Description>')
