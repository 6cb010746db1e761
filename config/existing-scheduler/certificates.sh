#!/usr/bin/env bash
# A CA of its own, a server certificate for the Service muster-extender and a client certificate for your kube-scheduler, as Secrets
# (muster-extender and muster-extender-client) on stdout: ./certificates.sh [CLUSTER_IP] | kubectl apply -f -
# The CA's key is thrown away: run it again for new ones (5 years). Needs openssl.
set -euo pipefail
address="${1:-}"
namespace="${NAMESPACE:-muster-system}"
client_namespace="${CLIENT_NAMESPACE:-$namespace}"  # where your scheduler's pods are
command -v openssl >/dev/null || { echo "certificates.sh: no openssl here" >&2; exit 1; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"

quietly() {  # COMMAND: what it says is shown only where it fails
  "$@" 2> said || { cat said >&2; exit 1; }
}

names="DNS:muster-extender.$namespace.svc,DNS:muster-extender.$namespace.svc.cluster.local"
[ -z "$address" ] || names="$names,IP:$address"
quietly openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1825 -subj "/CN=muster-extender-ca" \
  -keyout ca.key -out ca.crt
for who in server client; do
  quietly openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=muster-extender-$who" \
    -keyout "$who.key" -out "$who.csr"
  printf 'extendedKeyUsage=%sAuth\n' "$who" > "$who.ext"
  [ "$who" = client ] || printf 'subjectAltName=%s\n' "$names" >> "$who.ext"
  quietly openssl x509 -req -in "$who.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 1825 -extfile "$who.ext" \
    -out "$who.crt"
done

secret() {  # NAME NAMESPACE FILES
  cat <<SECRET
---
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: $1, namespace: $2}
data:
  ca.crt: $(base64 < ca.crt | tr -d '\n')
  tls.crt: $(base64 < "$3.crt" | tr -d '\n')
  tls.key: $(base64 < "$3.key" | tr -d '\n')
SECRET
}
secret muster-extender "$namespace" server
secret muster-extender-client "$client_namespace" client
