#!/bin/sh
# Runs a command against emulators of Google Cloud Storage (fake-gcs-server)
# and Azure Blob Storage (Azurite), both in memory:
#
#     tests/net/emulators.sh cargo test -p snap-remote --test remote outside
#
# The command finds SNAP_TEST_GCS_ENDPOINT and _BUCKET, SNAP_TEST_AZURE_ENDPOINT,
# _KEY, _SECRET and _BUCKET in its environment; its exit code is the script's.
# Both are installed by Go and npm when SNAP_TEST_CACHE (by default
# ~/.cache/snap-test) has none: some minutes and 400 MB, once.
set -eu

gcs_version=v1.56.1
azurite_version=3.37.0
cache=${SNAP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/snap-test}
gcs=$cache/fake-gcs-server
azurite=$cache/azurite/node_modules/.bin/azurite-blob

if [ $# -eq 0 ]; then
    echo "usage: $0 COMMAND [ARGUMENT]..." >&2
    exit 2
fi

mkdir -p "$cache"
if [ ! -x "$gcs" ]; then
    GOBIN=$cache GOFLAGS=-p=1 go install -ldflags '-s -w' \
        "github.com/fsouza/fake-gcs-server@$gcs_version" >&2
fi
if [ ! -x "$azurite" ]; then
    npm install --prefix "$cache/azurite" --no-audit --no-fund --silent \
        "azurite@$azurite_version" >&2
fi

folder=$(mktemp -d "$cache/run.XXXXXX")
running=
stop() {
    for process in $running; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

port() {
    awk -v seed="$$$1" 'BEGIN { srand(seed); print 20000 + int(rand() * 12000) }'
}

# Waits until anything answers at an address.
wait_for() {
    for _ in $(seq 100); do
        ! curl -s -o /dev/null --noproxy '*' --max-time 5 "$1" || return 0
        sleep 0.1
    done
    cat "$folder"/*.log >&2
    exit 1
}

gcs_address=127.0.0.1:$(port 1)
"$gcs" -backend memory -scheme http -host 127.0.0.1 -port "${gcs_address#*:}" \
    -public-host "$gcs_address" -external-url "http://$gcs_address" >"$folder/gcs.log" 2>&1 &
running=$!
azure_address=127.0.0.1:$(port 2)
"$azurite" --silent --inMemoryPersistence --skipApiVersionCheck --disableTelemetry \
    --blobHost 127.0.0.1 --blobPort "${azure_address#*:}" >"$folder/azure.log" 2>&1 &
running="$running $!"
wait_for "http://$gcs_address/storage/v1/b"
wait_for "http://$azure_address/"

bucket=bucket
curl -sS --fail --noproxy '*' -o /dev/null -H 'Content-Type: application/json' \
    -d "{\"name\":\"$bucket\"}" "http://$gcs_address/storage/v1/b?project=test"

# The account and key that Azurite has for everybody; they are no secret.
export SNAP_TEST_GCS_ENDPOINT="http://$gcs_address"
export SNAP_TEST_GCS_BUCKET=$bucket
export SNAP_TEST_AZURE_ENDPOINT="http://$azure_address/devstoreaccount1"
export SNAP_TEST_AZURE_KEY=devstoreaccount1
export SNAP_TEST_AZURE_SECRET=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
export SNAP_TEST_AZURE_BUCKET=$bucket

# A container is made by a signed request.
node -e '
const { createHmac } = require("crypto");
const { SNAP_TEST_AZURE_ENDPOINT: endpoint, SNAP_TEST_AZURE_KEY: account,
    SNAP_TEST_AZURE_SECRET: secret, SNAP_TEST_AZURE_BUCKET: bucket } = process.env;
const date = new Date().toUTCString();
const headers = `x-ms-date:${date}\nx-ms-version:2021-08-06\n`;
const resource = `/${account}/${account}/${bucket}\nrestype:container`;
const text = `PUT${"\n".repeat(12)}${headers}${resource}`;
const signature = createHmac("sha256", Buffer.from(secret, "base64")).update(text).digest("base64");
fetch(`${endpoint}/${bucket}?restype=container`, { method: "PUT", headers: {
    "x-ms-date": date, "x-ms-version": "2021-08-06",
    Authorization: `SharedKey ${account}:${signature}` } })
    .then(async reply => { if (!reply.ok) { console.error(reply.status, await reply.text()); process.exit(1); } });
'

code=0
"$@" || code=$?
exit "$code"
