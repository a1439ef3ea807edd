#!/usr/bin/env bash
# Every static check, one line each; the output of those that fail, and exit 1 if any did.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$PWD/.venv/bin
export PATH=$bin:$PATH

work=$(mktemp -d "${TMPDIR:-/tmp}/hotbed-lint.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'for lane in $(jobs -p); do kill -- "-$lane" 2>/dev/null || :; done; exit 130' INT TERM

check() { # check TITLE COMMAND...; a command ends with 75 if this machine cannot answer
    local title=$1 start verdict=ok output status=0
    read -r start _ </proc/uptime # nobody sets it
    output=$(mktemp "$work/XXXXXX")
    shift
    "$@" >"$output" 2>&1 </dev/null || status=$?
    case $status in 0) ;; 75) verdict=skipped ;; *) verdict=failed ;; esac
    {
        awk -v t="$title" -v v="$verdict" -v a="$start" \
            '{ printf "%-16s %-7s %6.1f s\n", t, v, $1 - a }' /proc/uptime
        [ "$verdict" = ok ] || cat "$output"
        [ "$verdict" != failed ] || touch "$work/failed"
    } >"$output.shown"
    cat "$output.shown" # at once, for two lanes print
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
    ! tools/go list -C dataplane -deps ./cmd/... | grep dataplane/tests
}

# Rules for which a search suffices. Files that are new and not ignored count too.
house_rules() {
    local found=0 search=(git grep -nE --untracked)
    none() { # none RULE COMMAND...: fails if the command prints anything
        local rule=$1 output
        shift
        output=$("$@") || :
        [ -z "$output" ] || { printf '%s:\n%s\n' "$rule" "$output"; found=1; }
    }
    long() {
        git ls-files -co --exclude-standard '*.py' '*.go' '*.y*ml' '*.sh' ':!tests/data' |
            xargs wc -l 2>/dev/null | awk '$1 > 1000 && $2 != "total"'
    }
    none "over 1000 lines; split it" long
    local site='\bsite(_kind|\.kind)?'
    none "only testbed/sites asks which site it is on" "${search[@]}" \
        "$site (==|!=|in|not in) *[\"'({[]|match .*$site:\$" -- '*.py' ':!testbed/sites' ':!tests'
    none "notebooks have no outputs; run nbstripout" \
        "${search[@]}" '"execution_count": [0-9]|"outputs": \[$' -- '*.ipynb'
    local clone=/home/[a-z] # a clone in /hotbed is nobody's own place
    [[ $PWD != /*/* ]] || clone=$PWD
    none "the path of a developer's machine" \
        "${search[@]}" "(^|[^a-zA-Z0-9_.])(/(home|Users)/[a-z][a-zA-Z0-9_-]*/|$clone\\b)"
    return "$found"
}

# answered DATABASE SIGN COMMAND...: run it; 75 if SIGN in its output says that the database of known
# vulnerabilities cannot be reached.
answered() {
    local database=$1 sign=$2 output
    shift 2
    output=$("$@" 2>&1) && return
    if grep -qE "$sign" <<<"$output"; then
        echo "not checked: $database cannot be reached from this machine"
        return 75
    fi
    echo "$output"
    return 1
}

govulncheck() {
    (cd tools/gotools && ../go build -o "$bin/govulncheck" golang.org/x/vuln/cmd/govulncheck) || return
    (
        cd dataplane
        PATH=$(../tools/go env GOROOT)/bin:$PATH GOTOOLCHAIN=local \
            answered vuln.go.dev "fetching vulnerabilities" "$bin/govulncheck" ./...
    )
}

audit() { # the locked packages
    answered api.osv.dev "ServiceError|ConnectionError|Could not connect" pip-audit --progress-spinner off \
        --vulnerability-service osv --disable-pip --require-hashes --requirement requirements.lock
}

site() { NO_MKDOCS_2_WARNING=1 mkdocs build --strict --site-dir "$work/site"; }

check "ruff check" ruff check .
check "ruff format" ruff format --check .
check "import-linter" lint-imports --no-logo --no-cache
check "class names" python tools/class_names.py
check "JSON Schemas" python -m tools.json_schemas --check
check "house rules" house_rules
# Two lanes side by side: mypy and ansible-lint have one thread each. Each lane is a process group,
# so that an interruption ends what it runs.
set -m
{
    check "mypy" mypy
    check "ansible-lint" ansible-lint --offline -q playbooks
    check "pip-audit" audit
} &
{
    check "gofmt" gofmt_clean
    check "go vet" tools/go vet -C dataplane ./...
    check "go programs" programs_without_test_servers
    check "staticcheck" staticcheck
    check "govulncheck" govulncheck
    check "reference pages" python -m tools.reference --check
    check "docs site" site
} &
wait
[ ! -e "$work/failed" ]
