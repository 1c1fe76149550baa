#!/bin/sh
# Runs a command against versitygw, a real S3 gateway, over a folder that is
# removed afterwards:
#
#     tests/net/versitygw.sh cargo test -p snap-remote
#
# The command finds SNAP_TEST_S3_ENDPOINT, _KEY, _SECRET and _BUCKET in its
# environment; its exit code is the script's. versitygw is built with Go when
# SNAP_TEST_CACHE (by default ~/.cache/snap-test) has none: 80 s of a
# processor, once.
set -eu

version=v1.8.0
cache=${SNAP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/snap-test}
binary=$cache/versitygw-$version
key=SNAPTESTACCESSKEY
secret=snap-test-secret-key
bucket=bucket

if [ $# -eq 0 ]; then
    echo "usage: $0 COMMAND [ARGUMENT]..." >&2
    exit 2
fi

if [ ! -x "$binary" ]; then
    command -v go >/dev/null || { echo "$0: versitygw needs Go to be built" >&2; exit 1; }
    mkdir -p "$cache"
    build=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$build"' EXIT
    GOBIN=$build GOFLAGS=-p=1 go install -ldflags '-s -w' \
        "github.com/versity/versitygw/cmd/versitygw@$version" >&2
    # Another run may be building the same: whole or not there.
    mv "$build/versitygw" "$binary"
    rm -rf "$build"
fi

# The gateway keeps ETags in extended attributes, which a tmpfs may lack.
folder=$(mktemp -d "$cache/run.XXXXXX")
gateway=
stop() {
    if [ -n "$gateway" ]; then
        kill "$gateway" 2>/dev/null || true
        wait "$gateway" 2>/dev/null || true
    fi
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Whether anything answers: to be refused without a signature is good enough.
ready() {
    curl -s -o /dev/null --noproxy '*' --max-time 5 "http://$address/"
}

# A port that looks free may be taken the next moment: then another is tried.
attempt=0
while [ -z "$gateway" ]; do
    attempt=$((attempt + 1))
    [ "$attempt" -le 10 ] || { cat "$folder/log" >&2; exit 1; }
    address=127.0.0.1:$(awk -v seed="$$$attempt" 'BEGIN { srand(seed); print 20000 + int(rand() * 12000) }')
    rm -rf "$folder/data"
    # To the gateway a folder is a bucket.
    mkdir -p "$folder/data/$bucket"
    ROOT_ACCESS_KEY=$key ROOT_SECRET_KEY=$secret \
        "$binary" --port "$address" posix "$folder/data" >"$folder/log" 2>&1 &
    gateway=$!
    for _ in $(seq 100); do
        sleep 0.1
        kill -0 "$gateway" 2>/dev/null || break
        ! ready || break 2
    done
    kill "$gateway" 2>/dev/null || true
    wait "$gateway" 2>/dev/null || true
    gateway=
done

export SNAP_TEST_S3_ENDPOINT="http://$address"
export SNAP_TEST_S3_KEY=$key
export SNAP_TEST_S3_SECRET=$secret
export SNAP_TEST_S3_BUCKET=$bucket
code=0
"$@" || code=$?
exit "$code"
