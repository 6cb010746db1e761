#!/usr/bin/env bash
# The e2e scenarios on kind: Muster as a Deployment of its image, where Docker and images can be had.
#   config/kind.sh up      cluster, image, fake GPU nodes, chart; the last line of stdout is `export E2E_KUBECONFIG=...`
#   config/kind.sh test    the same, then pytest e2e (those that need control of the lab's processes are skipped, and say so)
#   config/kind.sh down
# Environment: KIND_IMAGE (kindest/node:v1.34.x for the oldest supported version; empty: kind's default), NODES (16), GPUS (8).
# Needs docker, kind, kubectl, helm and `make setup`.
set -euo pipefail
cd "$(dirname "$0")/.."
nodes="${NODES:-16}"
gpus="${GPUS:-8}"
version="$(sed -n 's/^appVersion: //p' charts/muster/Chart.yaml)"
state="${XDG_STATE_HOME:-$HOME/.local/state}/muster/kind"
kubeconfig="$state/kubeconfig"
python=.venv/bin/python

say() { printf '%s\n' "$*" >&2; }

need() {
  for program in docker kind kubectl helm; do
    command -v "$program" > /dev/null || { say "error: $program is missing"; exit 1; }
  done
  [ -x "$python" ] || { say "error: .venv is missing: run make setup"; exit 1; }
}

stop_kwok() {
  [ -f "$state/kwok.pid" ] || return 0
  kill "$(cat "$state/kwok.pid")" 2> /dev/null || true
  rm -f "$state/kwok.pid"
}

up() {
  need
  mkdir -p "$state"
  if ! kind get clusters 2> /dev/null | grep -qx muster; then
    say "kind cluster muster ..."
    kind create cluster --config config/kind.yaml --kubeconfig "$kubeconfig" ${KIND_IMAGE:+--image "$KIND_IMAGE"} >&2
  fi
  kubectl="kubectl --kubeconfig $kubeconfig"
  # Pods of the scenarios belong on the fake nodes.
  $kubectl taint nodes muster-control-plane muster.dev/real=:NoSchedule --overwrite >&2

  say "image muster:$version ..."
  docker build -q -t "muster:$version" . >&2
  kind load docker-image --name muster "muster:$version" >&2

  say "$nodes fake nodes with $gpus GPUs ..."
  # The lab's own nodes and stages: pods end as a kubelet ends them. Leases, because a real node controller watches here.
  "$python" - "$nodes" "$gpus" << 'PYTHON' | $kubectl create -f - >&2 || say "(nodes that were there stay as they are)"
import json
import sys
from datetime import UTC, datetime

from e2e.lab.shape import NodeGroup, Shape, nodes

shape = Shape(groups=(NodeGroup(int(sys.argv[1]), gpus=int(sys.argv[2])),), racks=4)
now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
items = [node.manifest(now) for node in nodes(shape)]
for item in items:
    item["metadata"]["labels"]["muster.dev/fake"] = "true"
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
PYTHON
  stop_kwok
  # From PATH, the lab's cache, or a build.
  kwok="$("$python" -c '
from e2e.lab import build, versions
print(build.find(versions.binaries()["kwok"]))')"
  KWOK_WORKDIR="$state/kwok" nohup "$kwok" --kubeconfig="$kubeconfig" --config=e2e/kwok/stages.yaml --cidr=10.128.0.0/9 \
    --manage-all-nodes=false --manage-nodes-with-label-selector=muster.dev/fake=true --node-lease-duration-seconds=40 \
    > "$state/kwok.log" 2>&1 < /dev/null &
  echo $! > "$state/kwok.pid"
  $kubectl wait node -l muster.dev/fake=true --for=condition=Ready --timeout=60s > /dev/null

  say "chart ..."
  # Real pods on the real node: its kubelet is the only one that runs them.
  helm --kubeconfig "$kubeconfig" upgrade --install muster charts/muster -n muster-system --create-namespace --wait --timeout 5m \
    --set image.repository=muster --set image.pullPolicy=Never \
    --set 'nodeSelector.kubernetes\.io/hostname=muster-control-plane' \
    --set 'tolerations[0].key=muster.dev/real' --set 'tolerations[0].operator=Exists' \
    --set 'tolerations[1].key=node-role.kubernetes.io/control-plane' --set 'tolerations[1].operator=Exists' >&2
  say "down again: config/kind.sh down"
  echo "export E2E_KUBECONFIG=$kubeconfig"
}

case "${1:-}" in
  up) up ;;
  test) up; E2E_KUBECONFIG="$kubeconfig" "$python" -m pytest e2e "${@:2}" ;;
  down) stop_kwok; kind delete cluster --name muster; rm -rf "$state" ;;
  *) say "usage: config/kind.sh up | test [pytest arguments] | down"; exit 2 ;;
esac
