#!/usr/bin/env bash
# Regenerate the lock files. Each holds names, versions and hashes only: no index, no path.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=.venv/bin/uv
if [ ! -x "$uv" ]; then
    echo "make lock: .venv/bin/uv is missing; run \`make setup\` first" >&2
    exit 2
fi

compile() { # compile OUTPUT INPUT [OPTION...]
    local output=$1 input=$2
    shift 2
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        --output-file "$output" "$@" "$input"
    echo "$output: $(grep -c '^[a-zA-Z].*==' "$output") distributions"
}

compile requirements.lock pyproject.toml --all-extras "$@"
compile tools/sim.lock tools/sim.in --constraint requirements.lock
compile tools/bootstrap.lock tools/bootstrap.in "$@"
compile tools/go.lock tools/go.in "$@"
swift=playbooks/roles/swift/files/requirements
compile "$swift.lock" "$swift.in" "$@"
compile tests/bench/swift-bench.lock tests/bench/swift-bench.in "$@"
compile tests/openstack/requirements.lock tests/openstack/requirements.in "$@"
