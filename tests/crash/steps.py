"""What tests that go step by step share, beside the fixtures."""

import wire

FOREVER = 0xFFFFFFFF


def received(client: wire.Client, quiet: float = 0.3) -> list[bytes]:
    """All payloads that come until it is quiet for so many seconds."""
    return [one.payload for one in client.receive_all(quiet)]
