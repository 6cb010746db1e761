#!/bin/sh
# Writes go.mod and go.sum of one module that pins the lab's binaries (a person runs this to move to another
# version; the lab only builds from what is committed).
#
#   pin.sh kubernetes-1.37 k8s.io/kubernetes v1.37.1 kube-apiserver kube-controller-manager kube-scheduler kubectl
#   pin.sh helm-3 helm.sh/helm/v3 v3.22.0 helm
#   pin.sh lws sigs.k8s.io/lws v0.8.0 ./cmd       (a package by its folder; `.` is the module's own)
#   REPLACE=volcano.sh/apis=volcano.sh/apis@v1.14.0 pin.sh volcano volcano.sh/volcano v1.14.1 scheduler controller-manager webhook-manager
#
# k8s.io/kubernetes cannot be required as it is: its go.mod replaces every staging module by a folder of its own
# repository. We replace the same modules by their published versions (v1.37.1 -> v0.37.1).
set -eu
folder=$1 module=$2 version=$3
shift 3
cd "$(dirname "$0")"
rm -rf "$folder"
mkdir "$folder"
cd "$folder"
go mod init "muster.dev/e2e/binaries/$folder" 2>/dev/null
go mod edit -go=1.24.0 # the first with tool lines; `go get` raises it to what the modules need
if [ "$module" = k8s.io/kubernetes ]; then
    staging=v0.${version#v1.}
    gomod=$(go mod download -json "$module@$version" | sed -n 's/^.*"GoMod": "\(.*\)",$/\1/p')
    # whole lines of the replace block, so that k8s.io/api does not match k8s.io/apiserver
    sed -n 's#^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging/.*#\1#p' "$gomod" | while read -r name; do
        go mod edit -replace "$name=$name@$staging"
    done
else
    # What its own go.mod replaces by other versions (Volcano's does so with Kubernetes' modules) is replaced here, too:
    # Go reads such lines of the main module only. A folder of its repository is published as a module: REPLACE says which.
    gomod=$(go mod download -json "$module@$version" | sed -n 's/^.*"GoMod": "\(.*\)",$/\1/p')
    sed -n 's#^\(replace \|[[:space:]]*\)\([^ ]*\) => \([^ ]*\) \(v[^ ]*\)$#\2=\3@\4#p' "$gomod" | while read -r one; do
        go mod edit -replace "$one"
    done
fi
for one in ${REPLACE:-}; do
    go mod edit -replace "$one"
done
packages=
for command in "$@"; do
    case $command in
        .) packages="$packages $module@$version" ;;
        ./*) packages="$packages $module/${command#./}@$version" ;;
        *) packages="$packages $module/cmd/$command@$version" ;;
    esac
done
# shellcheck disable=SC2086  # one word a package
go get -tool $packages
