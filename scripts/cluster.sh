#!/usr/bin/env bash
# A cluster of brokers on this machine, on loopback.
#
#   scripts/cluster.sh up 3 [--dir DIR] [--port PORT] [--homes b1,b2] [--tls]
#                                                       start brokers b1, b2, b3; prints a line of JSON for each
#   scripts/cluster.sh status [--dir DIR]               the same lines, for the brokers that run
#   scripts/cluster.sh kill9 b2 [--dir DIR]             kill a broker, as a crash would
#   scripts/cluster.sh start b2 [--dir DIR]             start it again, with its data
#   scripts/cluster.sh down [--dir DIR]                 stop all brokers; their data stays
#
# DIR (./cluster-data) has the data, the configuration and the log of each broker. The brokers use five ports each, from
# PORT (1883) on: MQTT, WebSocket, AMQP, admin, and the one for each other. --homes names the brokers that have sessions
# that outlive their connections (all of them). With --tls the links between brokers use TLS, with certificates that
# openssl makes in DIR.
# Environment: BARID_BIN, the program (target/release/barid, which is built if it is missing).

set -euo pipefail
readonly ROOT=$(cd "$(dirname "$0")/.." && pwd)

usage() {
    sed -n '2,16s/^# \{0,1\}//p' "$0"
    exit "${1:-2}"
}

fail() {
    echo "cluster.sh: $*" >&2
    exit 1
}

program() {
    if [[ -n ${BARID_BIN:-} ]]; then
        echo "$BARID_BIN"
        return
    fi
    local built=$ROOT/target/release/barid
    [[ -x $built ]] || (cd "$ROOT" && cargo build --release --quiet --locked) >&2
    echo "$built"
}

brokers() {
    [[ -d $dir ]] || fail "there is no cluster in $dir: \`scripts/cluster.sh up 3 --dir $dir\` starts one"
    find "$dir" -mindepth 2 -maxdepth 2 -name barid.toml -printf '%h\n' | xargs -rn1 basename | sort -V
}

# The broker that the command names.
named() {
    [[ -n ${words[0]:-} ]] || fail "which broker? There are: $(brokers | xargs)"
    [[ -f $dir/${words[0]}/barid.toml ]] || fail "there is no broker ${words[0]} in $dir"
    echo "${words[0]}"
}

# The pid of a running broker; fails if it does not run.
pid_of() {
    local pid
    pid=$(cat "$dir/$1/pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null && echo "$pid"
}

configure() {
    local name=$1 base=$2 peers=$3
    mkdir -p "$dir/$name"
    cat >"$dir/$name/barid.toml" <<TOML
data_dir = "$dir/$name/data"

[listeners]
mqtt = { address = "127.0.0.1:$base" }
ws = { address = "127.0.0.1:$((base + 1))" }
amqp = { address = "127.0.0.1:$((base + 2))" }

[admin]
address = "127.0.0.1:$((base + 3))"

[cluster]
name = "local"
broker = "$name"
listen = "127.0.0.1:$((base + 4))"
peers = [$peers]
homes = [$(quoted "$homes")]
secret_file = "$dir/secret"
TOML
}

# Issues a certificate for a broker, and tells it to use that on links.
certify() {
    local name=$1 new=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    [[ -s $dir/ca.pem ]] || openssl req -x509 "${new[@]}" -days 3650 -subj "/CN=brokers of local" \
        -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
    openssl req "${new[@]}" -subj "/CN=$name" -addext "subjectAltName=IP:127.0.0.1" \
        -keyout "$dir/$name/link.key" -out "$dir/$name/link.csr" 2>/dev/null
    openssl x509 -req -in "$dir/$name/link.csr" -copy_extensions copy -days 365 \
        -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial -out "$dir/$name/link.pem" 2>/dev/null
    cat >>"$dir/$name/barid.toml" <<TOML

[cluster.tls]
certificate = "$dir/$name/link.pem"
key = "$dir/$name/link.key"
ca = "$dir/ca.pem"
TOML
}

# Quotes the names in a list.
quoted() {
    sed 's/[^,][^,]*/"&"/g; s/,/, /g' <<<"$1"
}

# Prints the admin address of a broker.
admin_of() {
    sed -n '/^\[admin\]/,/^$/s/^address = "\(.*\)"/\1/p' "$dir/$1/barid.toml"
}

# Starts a broker and waits until clients can connect.
start() {
    local name=$1 barid
    ! pid_of "$name" >/dev/null || fail "$name runs already"
    barid=$(program)
    # A group of its own, so that Ctrl-C in this terminal does not end it.
    setsid "$barid" serve --config "$dir/$name/barid.toml" >>"$dir/$name/log" 2>&1 </dev/null &
    echo $! >"$dir/$name/pid"
    local admin tries
    admin=$(admin_of "$name")
    for ((tries = 0; tries < 300; tries++)); do
        pid_of "$name" >/dev/null || fail "$name has ended: see $dir/$name/log"
        ! curl -fso /dev/null "http://$admin/healthz" || return 0
        sleep 0.1
    done
    fail "$name is not ready after 30 s: see $dir/$name/log"
}

# Waits until a broker has joined its cluster and takes clients.
joins() {
    local name=$1 admin tries
    admin=$(admin_of "$name")
    for ((tries = 0; tries < 300; tries++)); do
        ! curl -fs "http://$admin/v1/cluster" | grep -q '"takes_clients":true' || return 0
        sleep 0.1
    done
    fail "$name has not joined the cluster after 30 s: see $dir/$name/log"
}

show() {
    local name=$1 pid address
    pid=$(pid_of "$name") || return 0
    address() { sed -n "s/^$1 = { address = \"\(.*\)\" }/\1/p" "$dir/$name/barid.toml"; }
    printf '{"name": "%s", "pid": %s, "mqtt": "%s", "ws": "%s", "amqp": "%s", "admin": "%s"}\n' \
        "$name" "$pid" "$(address mqtt)" "$(address ws)" "$(address amqp)" \
        "$(admin_of "$name")"
}

end() {
    local name=$1 signal=$2 pid tries
    pid=$(pid_of "$name") || return 0
    kill "-$signal" "$pid"
    for ((tries = 0; tries < 100; tries++)); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.05
    done
    fail "$name (pid $pid) does not end"
}

command=${1:-}
[[ -n $command ]] || usage
shift
words=()
dir=$PWD/cluster-data port=1883 homes= tls=
while (($# > 0)); do
    case $1 in
        --dir) dir=$(realpath -m "${2:?--dir needs a directory}") && shift 2 ;;
        --port) port=${2:?--port needs a number} && shift 2 ;;
        --homes) homes=${2:?--homes needs names, separated by commas} && shift 2 ;;
        --tls) tls=1 && shift ;;
        -h | --help) usage 0 ;;
        -*) usage ;;
        *) words+=("$1") && shift ;;
    esac
done

case $command in
    up)
        count=${words[0]:-3}
        [[ $count =~ ^[1-9][0-9]?$ ]] && ((count <= 32)) || fail "the number of brokers is 1 to 32"
        mkdir -p "$dir"
        [[ -s $dir/secret ]] || (umask 077 && head -c 24 /dev/urandom | base64 >"$dir/secret")
        peers='' all=''
        for ((i = 1; i <= count; i++)); do
            peers+="${peers:+, }\"127.0.0.1:$((port + 5 * i - 1))\""
            all+="${all:+,}b$i"
        done
        homes=${homes:-$all}
        for ((i = 1; i <= count; i++)); do
            configure "b$i" $((port + 5 * (i - 1))) "$peers"
            [[ -z $tls ]] || certify "b$i"
            start "b$i"
        done
        for ((i = 1; i <= count; i++)); do
            joins "b$i"
            show "b$i"
        done
        ;;
    status) for name in $(brokers); do show "$name"; done ;;
    kill9)
        name=$(named)
        pid_of "$name" >/dev/null || fail "$name does not run"
        end "$name" KILL
        ;;
    start) name=$(named) && start "$name" && show "$name" ;;
    down) for name in $(brokers); do end "$name" TERM; done ;;
    -h | --help | help) usage 0 ;;
    *) usage ;;
esac
