#!/usr/bin/env bash
# Build Go programs into dataplane/bin: tools/dataplane.sh PYTHON GO FOLDER...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "$1") go=$2
shift 2
export CGO_ENABLED=0 GOTOOLCHAIN=local

sources_of() {
    "$python" -m testbed.closure "dataplane/cmd/$1"
}

mkdir -p dataplane/bin
sources="-X hotbed/dataplane/sim/ceph.Sources=$(sources_of hotbedsim)"
sources="$sources -X hotbed/dataplane/nfssim.Sources=$(sources_of pmsim)"
sources="$sources -X hotbed/dataplane/sim/burst.Sources=$(sources_of tcsim)"
cd dataplane
for folder in "$@"; do
    name=$(basename "$folder")
    "$go" build -trimpath -ldflags "$sources" -o "bin/$name.new" "./${folder#dataplane/}"
    mv "bin/$name.new" "bin/$name"
done
