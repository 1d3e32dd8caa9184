"""Helpers of the step-by-step tests, in addition to the fixtures."""

import wire

FOREVER = 0xFFFFFFFF


def received(client: wire.Client, count: int = 0, quiet: float = 0.3) -> list[bytes]:
    """Returns the payloads of the next `count` messages, however long they take, and of all messages after them until none
    arrives for `quiet` seconds.
    """
    return [one.payload for one in client.receive_all(quiet, count)]
