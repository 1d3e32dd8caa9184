"""Tests that the commands in README.md do what it says.

A block of commands is run if one of these comments precedes it:

    <!-- tested: starts the broker -->      the block must leave a broker running; the other blocks then use that broker
    <!-- tested -->                         the block must end, with status 0

The first comment may be used once; without it the test starts `barid serve`. All blocks run in the root of the repository.
PATH begins with the directory of the binary, followed by that of this Python, which has the clients. If possible, the
blocks run in a network namespace of their own, because they use the default ports.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from broker import BINARY, ROOT

README = ROOT / "README.md"
BLOCK = re.compile(r"^<!-- tested(: starts the broker)? -->\n+```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 120

# Brings up the loopback interface of a new network namespace, then runs the rest.
ISOLATE = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as some:
    fcntl.ioctl(some, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
os.execvp(sys.argv[1], sys.argv[1:])
"""


def isolation() -> list[str]:
    """Returns a command prefix that runs a command in a network namespace of its own; empty if the system forbids that."""
    prefix = ["unshare", "--map-root-user", "--net", sys.executable, "-c", ISOLATE]
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, timeout=10).returncode == 0
    except OSError:
        works = False
    return prefix if works else []


def script(starting: list[str], others: list[str]) -> str:
    """Returns a shell script that starts the broker, waits until it is healthy, and runs the other blocks in order."""
    lines = ["set -euo pipefail", "{", *starting, "} & ",
             "for i in $(seq 600); do curl -fs http://127.0.0.1:8081/healthz >/dev/null && break; sleep 0.1; done",
             "curl -fsS http://127.0.0.1:8081/healthz >/dev/null"]
    for block in others:
        lines += [f"cat >&2 <<'END OF BLOCK'\n--- README:\n{block}END OF BLOCK", "(", "set -e", block, ")"]
    return "\n".join(lines)


def test_the_readme(tmp_path):
    assert README.exists(), "there is no README.md"
    blocks = BLOCK.findall(README.read_text())
    starting = [text for starts, text in blocks if starts]
    others = [text for starts, text in blocks if not starts]
    assert others, "README.md has no block of commands with <!-- tested --> before it"
    assert len(starting) <= 1, "only one block can start the broker"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BARID_")}
    environment |= {"PATH": f"{BINARY.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with open(tmp_path / "output", "wb") as output:
        process = subprocess.Popen([*isolation(), "bash", "-c", script(starting or [f"barid serve --data-dir {tmp_path / 'data'}"], others)], cwd=ROOT,
                                   env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            status = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end after {SECONDS} s"
        finally:
            stop(process)
    assert status == 0, f"status {status}:\n" + (tmp_path / "output").read_text(errors="replace")


def stop(process: subprocess.Popen) -> None:
    """Ends the shell and everything that it has started, which form a process group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        time.sleep(0.5)
    process.wait()

