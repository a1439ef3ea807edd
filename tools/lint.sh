#!/usr/bin/env bash
# Every static check, one line each; the output of those that fail, and exit 1 if any did.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
export PATH=$bin:$PATH

work=$(mktemp -d "${TMPDIR:-/tmp}/hotbed-lint.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'for lane in $(jobs -p); do kill -- "-$lane" 2>/dev/null || :; done; exit 130' INT TERM

check() { # check TITLE COMMAND...
    local title=$1 start verdict=ok output
    read -r start _ </proc/uptime # nobody sets it
    output=$(mktemp "$work/XXXXXX")
    shift
    "$@" >"$output" 2>&1 </dev/null || verdict=failed
    {
        awk -v t="$title" -v v="$verdict" -v a="$start" \
            '{ printf "%-16s %-6s %6.1f s\n", t, v, $1 - a }' /proc/uptime
        if [ "$verdict" = failed ]; then
            cat "$output"
            touch "$work/failed"
        fi
    } >"$output.told"
    cat "$output.told" # at once, for two lanes print
}

gofmt_clean() {
    local unformatted
    unformatted=$("$(tools/go env GOROOT)/bin/gofmt" -l dataplane)
    [ -z "$unformatted" ] || {
        echo "not formatted (run gofmt -w):"
        echo "$unformatted"
        return 1
    }
}

staticcheck() {
    (cd tools/gotools && ../go build -o "$bin/staticcheck" honnef.co/go/tools/cmd/staticcheck) || return
    # Its own calls of go must meet the chosen toolchain.
    (cd dataplane && PATH=$(../tools/go env GOROOT)/bin:$PATH GOTOOLCHAIN=local "$bin/staticcheck" ./...)
}

programs_without_test_servers() {
    ! tools/go list -C dataplane -deps ./cmd/... | grep testservers
}

check "ruff check" ruff check .
check "ruff format" ruff format --check .
# Two lanes side by side: mypy and ansible-lint have one thread each. Each lane is a process group,
# so that an interruption ends what it runs.
set -m
{
    check "mypy" mypy
    check "ansible-lint" ansible-lint --offline -q playbooks
} &
{
    check "gofmt" gofmt_clean
    check "go vet" tools/go vet -C dataplane ./...
    check "go programs" programs_without_test_servers
    check "staticcheck" staticcheck
} &
wait
[ ! -e "$work/failed" ]
