"""Microsoft's SDK for Azure IoT Operations, as crates.io has it, against the broker with its default settings.

`sdk/` plays a scenario with the released crates, `scan/` lists keys with those that can. Where nothing breaks, a scenario
is played in two tenants at once, with the same client identifiers and keys. In the end the SDK's own tests, which come
with the crate, are run against the broker.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from broker import BINARY
from cuttable import Cuttable

HERE = Path(__file__).parent
TENANTS = ("acme", "globex")

# In the order of `azure-sdk list`.
UNDISTURBED = """
    set_get_del vdel only_if_absent only_if_absent_or_equal expiry any_bytes tenants_are_separate
    fencing_tokens fencing_tokens_of_deletions future_fencing_token
    changes_are_told several_keys_and_observers observe_and_unobserve expiry_is_told
    lease lease_renewal lease_expiry lock_waits contended_counter holder_dies
    large_values many_in_flight keep_alive
""".split()
DISTURBED = "cut_while_idle cut_while_busy many_in_flight_are_lost observe_again lock_across_a_cut broker_killed".split()
LIMITED = "key_quota key_rules".split()


TARGET = HERE / "target"
# The same for all that is built here, so that dependencies are built once.
ENVIRONMENT = os.environ | {"CARGO_TARGET_DIR": str(TARGET), "CARGO_PROFILE_DEV_DEBUG": "line-tables-only", "CARGO_INCREMENTAL": "0",
                            "RUST_BACKTRACE": "0"}


def cargo(command: str, manifest: Path, *arguments: str, **environment: str) -> str:
    line = ["cargo", command, "--locked", "--quiet", "--manifest-path", manifest / "Cargo.toml", *arguments]
    done = subprocess.run(line, env=ENVIRONMENT | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built(package: str) -> Path:
    """Builds a program, which takes a minute where its dependencies have not been built before."""
    cargo("build", HERE / package)
    return TARGET / "debug" / f"azure-{package}"


@pytest.fixture(scope="session")
def sdk() -> Path:
    return built("sdk")


@pytest.fixture(scope="session")
def scan() -> Path:
    return built("scan")


class Played:
    """A scenario under way."""

    def __init__(self, program: Path, address: tuple[str, int], *arguments: str):
        self.process = subprocess.Popen([program, "{}:{}".format(*address), *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)

    def until_it_ends(self, **faults) -> None:
        """Does what the scenario asks for, and asserts that it ends well."""
        said = []
        for line in self.process.stdout:
            said.append(line.strip())
            if line.startswith("do "):
                faults[line.split()[1]]()
                self.process.stdin.write("done\n")
                self.process.stdin.flush()
        _, messages = self.process.communicate(timeout=10)
        assert self.process.returncode == 0, f"{said}\n{messages}"
        assert said[-1].startswith("ok "), said


@pytest.fixture
def play():
    """Starts a scenario, which does not outlive its test."""
    started = []

    def start(*arguments) -> Played:
        started.append(Played(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_every_scenario_is_played(sdk):
    names = subprocess.run([sdk, "list"], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(names) == sorted(UNDISTURBED + DISTURBED + LIMITED)


@pytest.mark.parametrize("scenario", UNDISTURBED)
def test_scenario(sdk, brokers_with, play, scenario):
    running = brokers_with("")
    for played in [play(sdk, running.address, tenant, scenario) for tenant in TENANTS]:
        played.until_it_ends()


@pytest.mark.parametrize("scenario", DISTURBED)
def test_scenario_with_faults(sdk, brokers_with, play, scenario):
    running = brokers_with("")
    proxy = Cuttable(running)

    def kill():
        running.kill9()
        running.start()

    play(sdk, proxy.address, "acme", scenario).until_it_ends(deafen=proxy.deafen, cut=proxy.cut, kill=kill)
    proxy.close()


def test_key_quota(sdk, brokers_with, play):
    running = brokers_with("[tenants.acme.limits]\nmax_state_keys = 10\n")
    play(sdk, running.address, "acme", "key_quota").until_it_ends()


def test_key_rules(sdk, brokers_with, play):
    hashed = subprocess.run([BINARY, "passwd", "--stdin"], input="secret", capture_output=True, text=True, check=True)
    user = '[[users]]\nname = "acme/{}"\npassword = "{}"\nstate = [{}]\n'
    config = user.format("reader", hashed.stdout.strip(), '{ access = "read", keys = ["shared/*"] }')
    config += user.format("writer", hashed.stdout.strip(), '{ access = "write", keys = ["shared/{principal.clientId}"] }')
    play(sdk, brokers_with(config).address, "acme", "key_rules", "secret").until_it_ends()


def test_listing_keys(scan, brokers_with, play):
    running = brokers_with("")
    for played in [play(scan, running.address, tenant) for tenant in TENANTS]:
        played.until_it_ends()


FEATURES = "--features=state_store,leased_lock"

# Of each suite the number of tests that must pass.
OWN_TESTS = {"state_store_client_test": 10, "lease_client_tests": 11, "lock_client_tests": 4}

# Two renewals of a lease are to have the same counter. It is 1 if a request arrives within the millisecond in which it was
# sent, and 0 if later (section 5 of the protocol): on one machine chance decides.
BY_CHANCE = "lease_single_holder_acquires_a_lease_with_auto_renewal_network_tests"


@pytest.fixture(scope="session")
def own_tests() -> Path:
    """The crate with its tests, which connect to port 1883 unless they are changed."""
    packages = json.loads(cargo("metadata", HERE / "sdk", "--format-version", "1"))["packages"]
    crate = next(package for package in packages if package["name"] == "azure_iot_operations_services")
    copy = TARGET / "own-tests" / crate["version"]
    with open(TARGET / "own-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            shutil.copytree(Path(crate["manifest_path"]).parent, copy)
            for file in (copy / "tests").glob("*.rs"):
                file.write_text(file.read_text().replace("1883u16", 'env::var("PORT").unwrap().parse::<u16>().unwrap()'))
            with open(copy / "Cargo.toml", "a") as manifest:
                manifest.write("\n[workspace]\n")
    cargo("test", copy, FEATURES, "--no-run", *(f"--test={suite}" for suite in OWN_TESTS))
    return copy


@pytest.mark.parametrize("suite, tests", OWN_TESTS.items())
def test_the_tests_of_the_sdk_itself(own_tests, brokers_with, suite, tests):
    running = brokers_with("")
    said = cargo("test", own_tests, FEATURES, f"--test={suite}", "--", "--skip", BY_CHANCE,
                 ENABLE_NETWORK_TESTS="1", PORT=str(running.port))
    assert f"{tests} passed" in said, said
