"""What tests that go step by step share, beside the fixtures."""

import wire

FOREVER = 0xFFFFFFFF


def received(client: wire.Client, quiet: float = 0.3) -> list[bytes]:
    """All payloads that come until it is quiet for so many seconds."""
    found = []
    while True:
        try:
            found.append(client.receive(timeout=quiet).payload)
        except TimeoutError:
            return found
