#!/usr/bin/env bash
# The tests, all of them, on a Debian machine that has Rust: installs what they need, runs them, says how long each step took.
#
#   scripts/test.sh                  everything, as CI does
#   scripts/test.sh lint unit        only these steps, in this order
#
# Steps: setup lint unit blackbox fuzz. A step installs only what it needs; what is there already is not installed again.
# Environment: FUZZ_SECONDS (10) for each fuzz target, PYTEST_WORKERS (6).

set -euo pipefail
cd "$(dirname "$0")/.."

readonly VENV=.venv
readonly STEPS=(setup lint unit blackbox fuzz)
readonly CLUSTER_TESTS=(
    tests/conformance/test_{churn,operation,publish,queues_and_durability,retained,session,subscribe,topics,will}.py
    tests/statestore/test_{fencing,notifications,pipelines,repeated,requests,scan}.py
    tests/servicebus/test_{session_order,transports}.py
)
# By themselves, because they import from their conftest.py.
readonly CLUSTER_CLIENT_TESTS=(
    tests/clients/test_{barid_pub_sub,barid_state,entities,mosquitto,mosquitto_bridge,mqttjs,paho,paho_v5,retained_admin,session_admin,state_store_guide,users}.py
)

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# The tests of one machine must not depend on what its user has set for Barid.
for variable in "${!BARID_@}"; do [[ $variable == BARID_BIN ]] || unset "$variable"; done

# -------------------------------------------------------------------------------------------------------- steps

step_setup() {
    require cargo "the Rust toolchain: see https://rustup.rs"
    packages_for python3 python3 python3-venv
    packages_for openssl openssl
    packages_for cc build-essential
    packages_for mosquitto_pub mosquitto-clients
    PATH=$PATH:/usr/sbin packages_for mosquitto mosquitto
    PATH=$PATH:/usr/sbin packages_for mariadbd mariadb-server
    packages_for redis-server redis-server
    packages_for npm nodejs npm
    packages_for curl curl
    PATH=$PATH:/usr/sbin packages_for haproxy haproxy
    PATH=$PATH:/sbin:/usr/sbin packages_for ip iproute2
    PATH=$PATH:/usr/sbin packages_for nft nftables
    packages_for faketime faketime
    packages_for chromium chromium
    packages_for chromedriver chromium-driver
    # Microsoft's SDK links OpenSSL.
    packages_for pkg-config pkg-config
    pkg-config --exists openssl 2>/dev/null || missing_packages+=(libssl-dev)
    apt_install_missing
    python_environment
    node_modules
}

step_lint() {
    cargo fmt --all --check
    local manifest
    for manifest in fuzz races tests/azure/sdk tests/azure/scan tests/servicebus/fe2o3; do
        cargo fmt --manifest-path "$manifest/Cargo.toml" --check
    done
    cargo clippy --workspace --all-targets --quiet --locked -- -D warnings
    cargo clippy --manifest-path races/Cargo.toml --all-targets --quiet --locked -- -D warnings
    # The comments of the command line are texts for --help, not for rustdoc.
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude barid --no-deps --document-private-items --quiet --locked
}

step_unit() {
    cargo test --workspace --quiet --locked
    cargo test --manifest-path races/Cargo.toml --quiet --locked
}

# tests/crash compiles its recorder with cc, which setup has brought.
step_blackbox() {
    step_setup
    cargo build --quiet --locked
    export BARID_BIN=${BARID_BIN:-$PWD/target/debug/barid}
    local pytest=("$VENV/bin/pytest" -q -n "${PYTEST_WORKERS:-6}" --dist worksteal)
    "${pytest[@]}" tests
    # Once more over a cluster, whose links use TLS: each connection is to one of three brokers.
    BARID_BROKERS=3 BARID_LINK_TLS=1 "${pytest[@]}" "${CLUSTER_TESTS[@]}"
    BARID_BROKERS=3 BARID_LINK_TLS=1 "${pytest[@]}" "${CLUSTER_CLIENT_TESTS[@]}"
}

step_fuzz() {
    packages_for cc build-essential
    apt_install_missing
    # The coverage that libFuzzer needs, as cargo-fuzz asks the compiler for it. Installing cargo-fuzz would take longer than all
    # targets run. No crate has unsafe code, so there is no sanitizer: it would only make builds and runs slower.
    local host coverage="--cfg fuzzing -Cdebug-assertions -Ccodegen-units=1 -Cpasses=sancov-module"
    local option
    for option in level=4 inline-8bit-counters pc-table trace-compares; do
        coverage+=" -Cllvm-args=-sanitizer-coverage-$option"
    done
    host=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS=$coverage cargo build --manifest-path fuzz/Cargo.toml --release --target "$host" --quiet --locked
    # Two at a time: a target keeps one core busy.
    local target ran=0 running=()
    for target in fuzz/fuzz_targets/*.rs; do
        target=$(basename "$target" .rs)
        mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
        fuzz "fuzz/target/$host/release/$target" "$target" &
        running+=($!)
        ran=$((ran + 1))
        if ((${#running[@]} == 2)); then
            wait "${running[0]}"
            wait "${running[1]}"
            running=()
        fi
    done
    ((${#running[@]} == 0)) || wait "${running[0]}"
    ((ran > 0)) || fail "there is no fuzz target"
    echo "fuzzed $ran targets for ${FUZZ_SECONDS:-10} s each"
}

# ------------------------------------------------------------------------------------------------------ helpers

# Runs a fuzz target for a while: fuzz PROGRAM NAME
fuzz() {
    local program=$1 target=$2 log
    log=$(mktemp)
    if ! "$program" "fuzz/corpus/$target" "fuzz/seeds/$target" -artifact_prefix="fuzz/artifacts/$target/" \
        -max_total_time="${FUZZ_SECONDS:-10}" >"$log" 2>&1; then
        tail -n 60 "$log"
        rm "$log"
        fail "the fuzz target $target found something: see above and fuzz/artifacts/$target"
    fi
    echo "$target: $(grep -E '^Done [0-9]+ runs' "$log")"
    rm "$log"
}

missing_packages=()

# Notes packages to install unless their command is there: packages_for COMMAND PACKAGE...
packages_for() {
    local command=$1
    shift
    command -v "$command" >/dev/null || missing_packages+=("$@")
}

apt_install_missing() {
    ((${#missing_packages[@]} > 0)) || return 0
    local sudo=()
    if ((EUID != 0)); then
        require sudo "root, or sudo, to install: ${missing_packages[*]}"
        sudo=(sudo)
    fi
    echo "installing ${missing_packages[*]}"
    require apt-get "Debian's apt-get, or by hand: ${missing_packages[*]}"
    # RUNLEVEL=1: invoke-rc.d starts no service that a package may bring. The tests start servers of their own.
    "${sudo[@]}" apt-get -qq update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -qq install --yes --no-install-recommends "${missing_packages[@]}" >/dev/null
    missing_packages=()
}

python_environment() {
    local stamp=$VENV/requirements.installed
    cmp -s tests/requirements.txt "$stamp" && return
    if ! python3 -m venv "$VENV" >/dev/null 2>&1; then
        missing_packages+=(python3-venv)
        apt_install_missing
        python3 -m venv --clear "$VENV"
    fi
    "$VENV/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
    cp tests/requirements.txt "$stamp"
}

node_modules() {
    local directory stamp
    for directory in tests/clients/js tests/servicebus/js; do
        stamp=$directory/node_modules/package-lock.installed
        cmp -s "$directory/package-lock.json" "$stamp" && continue
        npm ci --prefix "$directory" --silent --no-audit --no-fund
        cp "$directory/package-lock.json" "$stamp"
    done
}

require() {
    command -v "$1" >/dev/null || fail "missing $1: this needs $2"
}

fail() {
    echo "scripts/test.sh: $*" >&2
    exit 1
}

# Runs a step. What fails in it ends everything, with a sentence that names the step.
run_step() {
    local name=$1 started=$SECONDS
    echo "== $name"
    # The trap runs when these locals are gone, so it is given their values now.
    trap "echo \"== $name: FAILED after \$((SECONDS - $started)) s; again with: scripts/test.sh $name\" >&2" EXIT
    "step_$name"
    trap - EXIT
    echo "== $name: ok after $((SECONDS - started)) s"
}

main() {
    local name steps=("$@")
    ((${#steps[@]} > 0)) || steps=("${STEPS[@]}")
    for name in "${steps[@]}"; do
        [[ $(type -t "step_$name") == function ]] || fail "no step $name; there are: ${STEPS[*]}"
    done
    for name in "${steps[@]}"; do
        run_step "$name"
    done
    echo "everything passed after $SECONDS s"
}

main "$@"
