"""What tests that go step by step share, beside the fixtures."""

import wire

FOREVER = 0xFFFFFFFF


def received(client: wire.Client, count: int = 0, quiet: float = 0.3) -> list[bytes]:
    """The payloads of the next `count` messages, however long they take, and of all that come then until it is quiet for so
    many seconds.
    """
    return [one.payload for one in client.receive_all(quiet, count)]
