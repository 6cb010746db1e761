{{/* The objects' name: the release's, or nameOverride. "muster" in the documentation. */}}
{{- define "muster.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that the chart sets, and nobody else. */}}
{{- define "muster.ownLabels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "muster.labels" -}}
{{ include "muster.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of a pod that is no replica of Muster's: none that the Service or the budget selects by. Arguments: the root, its name. */}}
{{- define "muster.hookPodLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata.annotations of an object that has none of its own, or "". */}}
{{- define "muster.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The account of muster's container. */}}
{{- define "muster.account" -}}
{{- default (include "muster.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* "true" where the hook that releases everything is rendered. auto: only where helm itself works on the cluster (`lookup` finds
     kube-system), since who renders with `helm template` and applies the result would run it at once. */}}
{{- define "muster.releaseHook" -}}
{{- $wanted := toString .Values.hooks.release.enabled -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") (lookup "v1" "Namespace" "" "kube-system")) -}}true{{- end -}}
{{- end -}}

{{/* The same of the pod that `helm test` runs. */}}
{{- define "muster.testHook" -}}
{{- $wanted := toString .Values.hooks.test.enabled -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") (lookup "v1" "Namespace" "" "kube-system")) -}}true{{- end -}}
{{- end -}}

{{/* repository:tag, or repository@digest. Arguments: the image's values, the tag. */}}
{{- define "muster.reference" -}}
{{- $image := index . 0 -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ index . 1 }}{{ end }}
{{- end -}}

{{/* Muster's image; only asked for where a container of it is rendered. */}}
{{- define "muster.image" -}}
{{- if not .Values.image.repository -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- fail (printf `image.repository is not set, and Muster has no public image. Build it from the repository's root and say where it is:
  docker build -t REGISTRY/muster:%[1]s .
  docker push REGISTRY/muster:%[1]s
  helm upgrade --install %[2]s charts/muster -n %[3]s --create-namespace --set image.repository=REGISTRY/muster
or, on kind (make kind does it all; two replicas request 1.5 CPUs: the last two values are for 2 cores):
  docker build -t muster:%[1]s .
  kind load docker-image muster:%[1]s
  helm upgrade --install %[2]s charts/muster -n %[3]s --create-namespace --set image.repository=muster \
    --set resources.requests.cpu=50m --set scheduler.resources.requests.cpu=50m
(replicas=0 installs everything but the Deployment, and needs no image.)
` $tag .Release.Name .Release.Namespace) -}}
{{- end -}}
{{ include "muster.reference" (list .Values.image (default .Chart.AppVersion .Values.image.tag)) }}
{{- end -}}

{{/* "true" where the cluster's version is known: helm asks the cluster (`lookup` finds kube-system), or was told what it serves (Argo CD gives
     --api-versions; of itself helm knows no kinds) or a version that is not helm's own. Without a cluster helm takes that of its client
     library, v1.N.0; a helm that does not say which one that is follows Kubernetes: 3.19 has 1.34, 4.0 too. */}}
{{- define "muster.versionKnown" -}}
{{- $given := semver .Capabilities.KubeVersion.Version -}}
{{- $helm := semver .Capabilities.HelmVersion.Version -}}
{{- $own := add $helm.Minor (ternary 34 15 (ge (int64 $helm.Major) 4)) -}}
{{- with (toJson .Capabilities.HelmVersion | fromJson).kube_client_version -}}{{- $own = (semver .).Minor -}}{{- end -}}
{{- $cluster := or (.Capabilities.APIVersions.Has "apps/v1/Deployment") (lookup "v1" "Namespace" "" "kube-system") -}}
{{- if or $cluster (ne (int64 $given.Minor) (int64 $own)) (ne (int64 $given.Patch) 0) -}}true{{- end -}}
{{- end -}}

{{/* kube-scheduler's image tag: the apiserver's version, or the value, never of a newer minor. Without a tag the image has its digest. */}}
{{- define "muster.schedulerTag" -}}
{{- $cluster := semver .Capabilities.KubeVersion.Version -}}
{{- $known := include "muster.versionKnown" . -}}
{{- with .Values.scheduler.image.tag -}}
  {{- $wanted := semver . -}}
  {{- if and $known (or (gt (int64 $wanted.Major) (int64 $cluster.Major)) (gt (int64 $wanted.Minor) (int64 $cluster.Minor))) -}}
  {{- fail (printf "scheduler.image.tag %s is newer than the apiserver (v%d.%d): Kubernetes does not support that. Leave it empty to follow the cluster." . (int64 $cluster.Major) (int64 $cluster.Minor)) -}}
  {{- end -}}
  {{ . }}
{{- else -}}
  {{- if not (or $known .Values.scheduler.image.digest) -}}
  {{- fail (printf "scheduler.image.tag: empty, so kube-scheduler's tag is the version of the cluster, and helm sees no cluster here: %[1]s is what helm %[2]s takes of itself. Say it with --kube-version (`kubectl version` shows it) or, also where it is %[1]s, with scheduler.image.tag." .Capabilities.KubeVersion.Version .Capabilities.HelmVersion.Version) -}}
  {{- end -}}
  {{- printf "v%d.%d.%d" (int64 $cluster.Major) (int64 $cluster.Minor) (int64 $cluster.Patch) -}}
{{- end -}}
{{- end -}}

{{/* How pods get the gate here: "policy" or "webhook". */}}
{{- define "muster.admissionMode" -}}
{{- if ne .Values.admission.mode "auto" -}}
{{ .Values.admission.mode }}
{{- else if include "muster.mutatingPolicyVersion" . -}}
policy
{{- else -}}
webhook
{{- end -}}
{{- end -}}

{{/* The version of the MutatingAdmissionPolicy API that this cluster serves; empty: none.
     v1 is on by default from 1.36; v1beta1 exists from 1.34, off by default: asked for by its presence. */}}
{{- define "muster.mutatingPolicyVersion" -}}
{{- if or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
admissionregistration.k8s.io/v1
{{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
admissionregistration.k8s.io/v1beta1
{{- end -}}
{{- end -}}

{{/* JSON: namespaces that never opt in. Muster's own and kube-system: what runs the cluster must start without Muster; that of pods which hold
     devices: they are not queued. */}}
{{- define "muster.leftOut" -}}
{{- $names := list "kube-system" .Release.Namespace -}}
{{- if .Values.devices.enabled }}{{ $names = append $names .Values.devices.namespace }}{{ end -}}
{{ toJson $names }}
{{- end -}}

{{- define "muster.namespaceSelector" -}}
{{- $selector := deepCopy .Values.namespaceSelector -}}
{{- $left := dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (include "muster.leftOut" . | fromJsonArray) -}}
{{- $_ := set $selector "matchExpressions" (append (default (list) $selector.matchExpressions) $left) -}}
{{ toYaml $selector }}
{{- end -}}

{{/* The same selector in CEL, true where the pod's namespace has opted in. */}}
{{- define "muster.namespaceSelectorCEL" -}}
{{- $labels := "namespaceObject.metadata.?labels.orValue({})" -}}
{{- $terms := list -}}
{{- range $key, $value := .Values.namespaceSelector.matchLabels -}}
{{- $terms = append $terms (printf "%s[?%q].orValue('') == %q && %q in %s" $labels $key $value $key $labels) -}}
{{- end -}}
{{- range .Values.namespaceSelector.matchExpressions -}}
{{- $value := printf "%s[?%q].orValue('')" $labels .key -}}
{{- $has := printf "%q in %s" .key $labels -}}
{{- $in := printf "%s in %s" $value (toJson (default (list) .values)) -}}
{{- if eq .operator "In" -}}{{- $terms = append $terms (printf "(%s && %s)" $has $in) -}}
{{- else if eq .operator "NotIn" -}}{{- $terms = append $terms (printf "!(%s && %s)" $has $in) -}}
{{- else if eq .operator "Exists" -}}{{- $terms = append $terms (printf "(%s)" $has) -}}
{{- else -}}{{- $terms = append $terms (printf "!(%s)" $has) -}}
{{- end -}}
{{- end -}}
{{- $terms = append $terms (printf "!(object.metadata.namespace in %s)" (include "muster.leftOut" .)) -}}
{{ join " && " $terms }}
{{- end -}}

{{/* The namespaces that namespaceSelector names one by one (by the label kubernetes.io/metadata.name), separated by blanks;
     empty: it selects by something else. What is left out everywhere is left out here. */}}
{{- define "muster.fixedNamespaces" -}}
{{- $key := "kubernetes.io/metadata.name" -}}
{{- $names := list -}}
{{- with index (default (dict) .Values.namespaceSelector.matchLabels) $key -}}
{{- $names = list . -}}
{{- end -}}
{{- range .Values.namespaceSelector.matchExpressions -}}
{{- if and (eq .key $key) (eq .operator "In") -}}
{{- $names = .values -}}
{{- end -}}
{{- end -}}
{{- $left := include "muster.leftOut" . | fromJsonArray -}}
{{- $kept := list -}}
{{- range $names }}{{ if not (has . $left) }}{{ $kept = append $kept . }}{{ end }}{{ end -}}
{{- sortAlpha $kept | join " " -}}
{{- end -}}

{{/* "true" where namespaceSelector asks for another label than a namespace's own name, so that muster must know their labels. */}}
{{- define "muster.namespacesByLabels" -}}
{{- $keys := keys (default (dict) .Values.namespaceSelector.matchLabels) -}}
{{- range .Values.namespaceSelector.matchExpressions }}{{ $keys = append $keys .key }}{{ end -}}
{{- ne (len (without $keys "kubernetes.io/metadata.name")) 0 -}}
{{- end -}}

{{/* What muster does to pods: gate and pin, nominatedNodeName, evict. */}}
{{- define "muster.podRules" -}}
- apiGroups: [""]
  resources: [pods, pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
{{- end -}}

{{/* What `muster release --all` takes out of force first: what gates new pods, and no other. */}}
{{- define "muster.liftRule" -}}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingadmissionpolicybindings, validatingadmissionpolicybindings, mutatingwebhookconfigurations]
  resourceNames: [{{ include "muster.name" . }}-gate]
  verbs: [delete]
{{- end -}}

{{/* What holding the Lease takes. A create can't be limited to a name. */}}
{{- define "muster.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "muster.name" . }}-scheduler]
  verbs: [get, update]
{{- end -}}

{{/* The user that muster's container is. */}}
{{- define "muster.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "muster.account" . }}
{{- end -}}

{{/* CEL: the request comes from muster, its hooks, or a member of the break-glass group. */}}
{{- define "muster.trustedCEL" -}}
{{- $account := include "muster.user" . -}}
{{- $hooks := printf "system:serviceaccount:%s:%s-hooks" .Release.Namespace (include "muster.name" .) -}}
(request.userInfo.username in [{{ $account | squote }}, {{ $hooks | squote }}] || {{ .Values.breakGlassGroup | squote }} in request.userInfo.?groups.orValue([]))
{{- end -}}

{{/* JSON: whether a node has GPUs, and the nodes that no taint of a team's own keeps other schedulers off: of those with GPUs, or of all where
     none has any. No cluster to ask (helm template): none. A taint by the name of a resource that a node offers (`device`: one that was found) keeps
     nobody off who asks for that. As `muster doctor` sees it. */}}
{{- define "muster.openNodes" -}}
{{- $devices := default (list "*/gpu") .Values.deviceResources -}}
{{- $with := list -}}
{{- $without := list -}}
{{- $any := false -}}
{{- $device := "" -}}
{{- $offered := dict -}}
{{- $every := (lookup "v1" "Node" "" "").items -}}
{{- range $every }}{{ $offered = merge $offered (default (dict) .status.allocatable) }}{{ end -}}
{{- range $every -}}
{{- $gpus := false -}}
{{- range $name, $amount := .status.allocatable -}}
{{- range $devices -}}
{{- $part := trimAll "*" . -}}
{{- $counts := or (eq $name .) (and (hasPrefix "*" .) (hasSuffix $part $name)) (and (hasSuffix "*" .) (hasPrefix $part $name)) -}}
{{- if and $counts (ne (toString $amount) "0") -}}{{- $gpus = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $kept := default false .spec.unschedulable -}}
{{- $named := "" -}}
{{- range .spec.taints -}}
{{- if and (has .effect (list "NoSchedule" "NoExecute")) (not (hasPrefix "node.kubernetes.io/" .key)) -}}
{{- if hasKey $offered .key -}}{{- $named = .key -}}{{- else -}}{{- $kept = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if $gpus -}}{{- $any = true -}}{{- end -}}
{{- if not $kept -}}
{{- $device = default $device $named -}}
{{- if $gpus -}}{{- $with = append $with .metadata.name -}}{{- else -}}{{- $without = append $without .metadata.name -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "gpus" $any "names" (ternary $with $without $any) "device" $device | toJson -}}
{{- end -}}

{{/* The first three names, and how many more there are. */}}
{{- define "muster.listed" -}}
{{- $more := sub (len .) 3 -}}
{{ slice . 0 (min 3 (len .)) | join ", " }}{{ if gt $more 0 }} and {{ $more }} more{{ end }}
{{- end -}}

{{/* Of Muster's configuration, what a value of the chart says, from which it makes more than that: two words for it could differ. */}}
{{- define "muster.refuseTwice" -}}
{{- $config := default (dict) .Values.config -}}
{{- $values := dict "leader.own" "scheduler.enabled" "leader.lease" "nameOverride" "leader.namespace" "--namespace (an option of helm)" "webhook" "admission and ports.webhook" -}}
{{- range list "schedulerName" "mode" "profile" "order" "binder" "clusterScheduler" "namespaceSelector" "topologyLevels" "deviceResources" "autoscaler" "tls" "ports.service" "ports.extender" "reporting.enabled" "reporting.url" -}}
{{- $_ := set $values . . -}}
{{- end -}}
{{- $twice := list -}}
{{- range $key := keys $values | sortAlpha -}}
{{- $parts := splitList "." $key -}}
{{- $at := $config -}}
{{- range initial $parts }}{{ $at = default (dict) (index $at .) }}{{ end -}}
{{- if hasKey $at (last $parts) -}}
{{- $twice = append $twice (printf "config.%s: expected none, found %s. Say it by the value %s" $key (index $at (last $parts) | toJson) (index $values $key)) -}}
{{- end -}}
{{- end -}}
{{- with $twice -}}
{{- fail (printf "%s: the chart makes more of it than this part of Muster's configuration." (join "; " .)) -}}
{{- end -}}
{{- end -}}

{{/* What can't work is refused, never installed as something that does nothing. */}}
{{- define "muster.refuse" -}}
{{- if and (eq .Values.binder "cluster") (eq .Values.schedulerName .Values.clusterScheduler) -}}
{{- fail (printf "schedulerName: %s is clusterScheduler too: no pod could say whether it is Muster's. Choose another schedulerName (default: muster); with binder: cluster admission replaces it." .Values.schedulerName) -}}
{{- end -}}
{{- if and .Release.IsInstall (eq (include "muster.ownScheduler" .) "true") (not .Values.sharedNodes) -}}
{{- $open := include "muster.openNodes" . | fromJson -}}
{{- if and $open.gpus $open.names -}}
{{- fail (printf "binder: own needs nodes that other schedulers keep off, and no taint is on %s%s. Either binder=cluster: the scheduler that you have binds. Or a taint, `kubectl taint nodes NODE muster.dev/scheduler=muster:NoSchedule`, whose toleration pods of Muster's get by admission. Or sharedNodes=true, where nobody else asks for GPUs." (include "muster.listed" $open.names) (ternary (printf " (%s is none: pods that ask for GPUs tolerate it)" $open.device) "" (ne $open.device ""))) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.binder "cluster") (eq .Values.autoscaler.ask "ungate") -}}
{{- fail "autoscaler.ask: ungate needs binder own: the cluster's scheduler would bind the pods one by one, since no filter of ours guards them. Use provisioning-request." -}}
{{- end -}}
{{- if and (eq .Values.admission.mode "policy") (not (include "muster.mutatingPolicyVersion" .)) -}}
{{- fail (printf "admission.mode: policy needs the MutatingAdmissionPolicy API, which this cluster (%s) does not serve. Use admission.mode: auto or webhook; or, on 1.34 and 1.35, start kube-apiserver with --feature-gates=MutatingAdmissionPolicy=true --runtime-config=admissionregistration.k8s.io/v1beta1=true." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "secret") (not .Values.tls.secret) -}}
{{- fail (printf "tls.secret: with tls.mode: secret it must name a Secret of type kubernetes.io/tls in namespace %s (kubectl create secret tls ...)." .Release.Namespace) -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "certManager") (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name: with tls.mode: certManager it must name an Issuer, or with kind: ClusterIssuer a ClusterIssuer." -}}
{{- end -}}
{{- include "muster.refuseTwice" . -}}
{{- $own := include "muster.ownLabels" . | fromYaml -}}
{{- range $value := list "commonLabels" "podLabels" -}}
{{- range $label, $_ := index $.Values $value -}}
{{- if hasKey $own $label -}}
{{- fail (printf "%s: expected labels beside the chart's own, found %s, which it sets: the Service and the budget select by such. Objects are named by nameOverride." $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with (default (dict) .Values.config).profiles -}}
{{- $known := splitList " " (include "muster.profiles" $) -}}
{{- $own := list -}}
{{- range . }}{{ $own = append $own .name }}{{ end -}}
{{- if not (has $.Values.profile (concat $known $own)) -}}
{{- fail (printf "profile: expected one of config.profiles (%s) or of those that Muster has (%s), found %s." (join ", " $own) (join ", " $known) $.Values.profile) -}}
{{- end -}}
{{- end -}}
{{- $named := splitList " " (include "muster.plugins" $) -}}
{{- range (default (dict) .Values.config).profiles -}}
{{- $named = concat $named (compact (list .sort .estimate)) (default (list) .filters) (default (list) .shares) (default (list) .rebalance) -}}
{{- range .scores }}{{ $named = append $named .name }}{{ end -}}
{{- end -}}
{{- range $plugin := default (dict) (default (dict) .Values.config).pluginArgs | keys | sortAlpha -}}
{{- if not (has $plugin $named) -}}
{{- fail (printf "config.pluginArgs: expected plugins that Muster has or that one of config.profiles names (%s), found %s." ($named | uniq | join ", ") $plugin) -}}
{{- end -}}
{{- end -}}
{{- with (default (dict) .Values.config).devices -}}
{{- fail (printf "config.devices: expected none, found %s. Say it by the value `devices`: the chart makes the namespace, rights and policies of devices in place from it, and this part of Muster's configuration." (keys . | sortAlpha | join ", ")) -}}
{{- end -}}
{{- if .Values.devices.enabled -}}
{{- if eq .Values.mode "observe" -}}
{{- fail "devices.enabled: needs mode: active, found observe: what only looks on can't give devices." -}}
{{- end -}}
{{- if not .Values.reporting.enabled -}}
{{- fail "devices.enabled: needs reporting.enabled: true, found false: agents are known by the token of reports." -}}
{{- end -}}
{{- if and .Values.devices.access (not (include "muster.mutatingPolicyVersion" .)) -}}
{{- fail (printf "devices.access: %s needs the MutatingAdmissionPolicy API, which this cluster (%s) does not serve. Leave it empty: pods bring their access to devices." .Values.devices.access .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if and .Values.devices.mps (not (include "muster.mutatingPolicyVersion" .)) -}}
{{- fail (printf "devices.mps: %s needs the MutatingAdmissionPolicy API, which this cluster (%s) does not serve. Leave it empty: pods bring what MPS needs." .Values.devices.mps .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if has .Values.devices.namespace (list "default" "kube-system" "kube-public" "kube-node-lease" .Release.Namespace) -}}
{{- fail (printf "devices.namespace: expected a namespace for the pods that hold devices and nothing else, which the chart makes, found %s." .Values.devices.namespace) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.schedulerName "default-scheduler" -}}
{{- fail "schedulerName: default-scheduler is the cluster's own scheduler: every pod would be Muster's. Choose another name (default: muster)." -}}
{{- end -}}
{{- end -}}

{{/* CEL: a pod, or a pod template, is Muster's: by its schedulerName, or by the label that admission adds where it replaces that
     (binder: cluster). The label counts always: pods of an earlier binder stay Muster's. Arguments: the root, the object's expression. */}}
{{- define "muster.oursCEL" -}}
{{- $root := index . 0 -}}
{{- $it := index . 1 -}}
({{ $it }}.spec.?schedulerName.orValue('') == {{ $root.Values.schedulerName | squote }} || {{ $it }}.?metadata.?labels[?'muster.dev/scheduler'].orValue('') == {{ $root.Values.schedulerName | squote }})
{{- end -}}

{{/* CEL: the pod in `oldObject` is one that Muster's accounts may patch. With binder: cluster a pod that holds a device is the cluster's
     scheduler's (what may be changed of it: admission-holders.yaml). */}}
{{- define "muster.patchedCEL" -}}
{{- if and .Values.devices.enabled (eq .Values.binder "cluster") -}}
({{ include "muster.oursCEL" (list . "oldObject") }} || request.namespace == {{ .Values.devices.namespace | squote }})
{{- else -}}
{{ include "muster.oursCEL" (list . "oldObject") }}
{{- end -}}
{{- end -}}

{{/* CEL: the pod in `object` is as admission makes one of ours: gated (not in mode observe) and, with binder: cluster, marked and the
     cluster's scheduler's. */}}
{{- define "muster.admittedCEL" -}}
{{- $terms := list -}}
{{- if eq .Values.mode "active" -}}
{{- $terms = append $terms "object.spec.?schedulingGates.orValue([]).exists(g, g.name == 'muster.dev/queue')" -}}
{{- end -}}
{{- if eq .Values.binder "cluster" -}}
{{- $terms = append $terms (printf "object.metadata.?labels[?'muster.dev/scheduler'].orValue('') == '%s'" .Values.schedulerName) -}}
{{- $terms = append $terms (printf "object.spec.?schedulerName.orValue('') != '%s'" .Values.schedulerName) -}}
{{- end -}}
{{ join " && " $terms }}
{{- end -}}

{{/* "true" where a kube-scheduler of ours stands beside muster. */}}
{{- define "muster.ownScheduler" -}}
{{- and .Values.scheduler.enabled (eq .Values.binder "own") -}}
{{- end -}}

{{/* "true" where admission lets pods onto nodes that are tainted for the scheduler beside muster: nobody else's pods, by its name. */}}
{{- define "muster.letsOn" -}}
{{- and (eq .Values.mode "active") (eq (include "muster.ownScheduler" .) "true") -}}
{{- end -}}

{{/* CEL: nothing is to be added to the pod's tolerations: it says itself what of the taint muster.dev/scheduler it tolerates, or another
     scheduler binds it (the label says that it is ours, from an earlier binder: cluster). */}}
{{- define "muster.letOnCEL" -}}
(object.spec.?schedulerName.orValue('') != {{ .Values.schedulerName | squote }} || object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == 'muster.dev/scheduler' || (t.?key.orValue('') == '' && t.?effect.orValue('') == '')))
{{- end -}}

{{/* CEL: the gate policy has nothing to do on the pod. No validation asks for the toleration: a pod without it waits, and says so. */}}
{{- define "muster.settledCEL" -}}
{{ include "muster.admittedCEL" . }}{{ if eq (include "muster.letsOn" .) "true" }} && {{ include "muster.letOnCEL" . }}{{ end }}
{{- end -}}

{{/* "true" where admission changes pods of ours at all. */}}
{{- define "muster.mutates" -}}
{{- or (eq .Values.mode "active") (eq .Values.binder "cluster") -}}
{{- end -}}

{{/* matchConditions: pods that Muster queues: all of ours but those that already have a node (the API forbids a gate on them; who may
     make one at all: admission-unqueued.yaml). */}}
{{- define "muster.queuedPodConditions" -}}
- name: ours
  expression: "{{ include "muster.oursCEL" (list . "object") }}"
- name: has-no-node
  expression: "object.spec.?nodeName.orValue('') == ''"
{{- end -}}

{{/* Labels that decide which job a pod belongs to: ours and those of the owners that Muster knows. */}}
{{- define "muster.identityLabels" -}}
{{- list
  "muster.dev/job" "muster.dev/scheduler"
  "batch.kubernetes.io/job-name" "job-name" "batch.kubernetes.io/controller-uid" "controller-uid"
  "batch.kubernetes.io/job-completion-index" "apps.kubernetes.io/pod-index" "statefulset.kubernetes.io/pod-name"
  "jobset.sigs.k8s.io/jobset-name" "jobset.sigs.k8s.io/jobset-uid" "jobset.sigs.k8s.io/replicatedjob-name" "jobset.sigs.k8s.io/job-index"
  "training.kubeflow.org/job-name" "training.kubeflow.org/replica-type" "training.kubeflow.org/replica-index"
  "trainer.kubeflow.org/trainjob-ancestor-step"
  "ray.io/cluster" "ray.io/node-type" "ray.io/group"
  "leaderworkerset.sigs.k8s.io/name" "leaderworkerset.sigs.k8s.io/group-index" "leaderworkerset.sigs.k8s.io/worker-index" "leaderworkerset.sigs.k8s.io/group-key"
  "scheduling.x-k8s.io/pod-group" "pod-group.scheduling.sigs.k8s.io"
  "volcano.sh/job-name" "volcano.sh/task-spec"
  | toJson -}}
{{- end -}}

{{/* CEL: the pod or the owner's pod template in `object` or `oldObject`. dyn: the kinds differ, so no type can be checked. */}}
{{- define "muster.templateCEL" -}}
(request.kind.kind == 'Pod' ? dyn({{ . }}) : request.kind.kind == 'CronJob' ? dyn({{ . }}).spec.jobTemplate.spec.template : dyn({{ . }}).spec.template)
{{- end -}}

{{/* Names that the webhook's certificate is for, separated by commas. */}}
{{- define "muster.webhookHosts" -}}
{{- $service := printf "%s.%s.svc" (include "muster.name" .) .Release.Namespace -}}
{{- $hosts := list $service (printf "%s.cluster.local" $service) -}}
{{- with .Values.admission.webhook.url -}}
{{- $hosts = append $hosts (regexReplaceAll ":[0-9]+$" (urlParse .).host "") -}}
{{- end -}}
{{ join "," $hosts }}
{{- end -}}

{{/* The webhook's certificates as data of a Secret: those that are there if they are for the same names, else new ones (10 years).
     `helm template` sees no cluster and makes new ones each time: with a GitOps tool that renders so, leave mode on policy. */}}
{{- define "muster.webhookTLS" -}}
{{- $name := printf "%s-webhook" (include "muster.name" .) -}}
{{- $hosts := include "muster.webhookHosts" . -}}
{{- $old := lookup "v1" "Secret" .Release.Namespace $name -}}
{{- if and $old (eq (dig "metadata" "annotations" "muster.dev/hosts" "" $old) $hosts) -}}
{{- toYaml (pick $old.data "ca.crt" "tls.crt" "tls.key") -}}
{{- else -}}
{{- $names := list -}}
{{- $addresses := list -}}
{{- range splitList "," $hosts -}}
{{- if regexMatch "^[0-9.]+$" . -}}{{- $addresses = append $addresses . -}}{{- else -}}{{- $names = append $names . -}}{{- end -}}
{{- end -}}
{{- $ca := genCA $name 3650 -}}
{{- $cert := genSignedCert (first $names) $addresses $names 3650 $ca -}}
{{- dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $cert.Cert) "tls.key" (b64enc $cert.Key) | toYaml -}}
{{- end -}}
{{- end -}}

{{/* "true" where muster's own webhook adds the gate. */}}
{{- define "muster.webhookServed" -}}
{{- and (eq (include "muster.mutates" .) "true") (eq (include "muster.admissionMode" .) "webhook") -}}
{{- end -}}

{{/* CEL: the template has a label or an annotation of ours. Most pods have none, and a millisecond less at CREATE. */}}
{{- define "muster.speaksCEL" -}}
({{ include "muster.templateCEL" "object" }}.?metadata.?annotations.orValue({}).exists(k, k.startsWith('muster.dev/')) || {{ include "muster.templateCEL" "object" }}.?metadata.?labels.orValue({}).exists(k, k.startsWith('muster.dev/')))
{{- end -}}

{{/* CEL: of what is advised on: it is created, its spec changes, or it comes into a queue of Kueue's. */}}
{{- define "muster.newsCEL" -}}
request.operation == 'CREATE' || dyn(object).spec != dyn(oldObject).spec || ('kueue.x-k8s.io/queue-name' in object.metadata.?labels.orValue({}) && !('kueue.x-k8s.io/queue-name' in oldObject.metadata.?labels.orValue({})))
{{- end -}}

{{/* CEL: a text, cut to what a sentence repeats of it: of a message longer than 5 KiB the apiserver shows nothing. */}}
{{- define "muster.shownCEL" -}}
({{ . }}.size() > 80 ? {{ . }}.substring(0, 80) + '...' : {{ . }})
{{- end -}}

{{/* "true" where pods are told how to report (annotation muster.dev/report). */}}
{{- define "muster.reports" -}}
{{- and .Values.reporting.enabled (eq .Values.mode "active") -}}
{{- end -}}

{{/* "true" where the service port speaks TLS. */}}
{{- define "muster.tls" -}}
{{- ne .Values.tls.mode "none" -}}
{{- end -}}

{{- define "muster.scheme" -}}
{{- ternary "https" "http" (eq (include "muster.tls" .) "true") -}}
{{- end -}}

{{/* The Secret that holds the service port's certificate. */}}
{{- define "muster.tlsSecret" -}}
{{- ternary .Values.tls.secret (printf "%s-tls" (include "muster.name" .)) (eq .Values.tls.mode "secret") -}}
{{- end -}}

{{/* Names of the Service: what clients call it, inside the cluster. */}}
{{- define "muster.serviceHosts" -}}
{{- $service := printf "%s.%s.svc" (include "muster.name" .) .Release.Namespace -}}
{{- list $service (printf "%s.cluster.local" $service) (printf "%s.%s" (include "muster.name" .) .Release.Namespace) | toJson -}}
{{- end -}}

{{/* "true" where pods that report are told who signed: they are sent to the chart's own Service. */}}
{{- define "muster.tellsAuthority" -}}
{{- and (eq (include "muster.tls" .) "true") (not .Values.reporting.url) -}}
{{- end -}}

{{/* Where pods send reports: MUSTER_URL. */}}
{{- define "muster.reportURL" -}}
{{- default (printf "%s://%s.%s.svc:%d" (include "muster.scheme" .) (include "muster.name" .) .Release.Namespace (int .Values.ports.service)) .Values.reporting.url -}}
{{- end -}}

{{/* Who says which device a pod that holds one got: status, or hold (its container). */}}
{{- define "muster.devicesReport" -}}
{{- if ne .Values.devices.report "auto" }}{{ .Values.devices.report }}{{ else }}{{ ternary "hold" "status" (semverCompare "<1.36-0" .Capabilities.KubeVersion.Version) }}{{ end -}}
{{- end -}}

{{/* The image of pods that hold devices. */}}
{{- define "muster.holderImage" -}}
{{- if .Values.devices.image }}{{ .Values.devices.image }}
{{- else if eq (include "muster.devicesReport" .) "hold" }}{{ include "muster.image" . }}
{{- else }}registry.k8s.io/pause:3.10.1{{ end -}}
{{- end -}}

{{/* matchConditions: pods of ours that ask for it and have not got it. */}}
{{- define "muster.reportConditions" -}}
{{ include "muster.queuedPodConditions" . }}
- name: wants-to-report
  expression: "object.metadata.?annotations[?'muster.dev/report'].orValue('') == 'true'{{ if .Values.devices.enabled }} || 'muster.dev/gpus' in object.metadata.?annotations.orValue({}){{ end }}"
- name: has-no-token-for-muster-yet
  expression: "!object.spec.?volumes.orValue([]).exists(v, v.name == 'muster-report')"
{{- end -}}

{{/* CEL: the volume with the pod's token for muster, renewed by the kubelet each 48 minutes. */}}
{{- define "muster.reportVolumeCEL" -}}
{"name": dyn("muster-report"), "projected": dyn({"sources": [{"serviceAccountToken": {"audience": dyn("muster.dev"), "expirationSeconds": dyn(3600), "path": dyn("token")}}]})}
{{- end -}}

{{/* JSON: requirements on labels of namespaces that may have pods in place. */}}
{{- define "muster.devicesRequirements" -}}
{{- $selector := default (dict "matchLabels" (dict "muster.dev/devices" "true")) .Values.devices.namespaceSelector -}}
{{- $found := default (list) $selector.matchExpressions -}}
{{- range $key, $value := $selector.matchLabels -}}
{{- $found = append $found (dict "key" $key "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}

{{/* matchConstraints and matchConditions: pods in place, and the pod templates of built-in owners that make some. */}}
{{- define "muster.inPlaceMatch" -}}
matchConstraints:
  namespaceSelector: {{- include "muster.namespaceSelector" . | nindent 4 }}
  resourceRules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
  - apiGroups: [batch]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [jobs, cronjobs]
  - apiGroups: [apps]
    apiVersions: [v1]
    operations: [CREATE, UPDATE]
    resources: [statefulsets, deployments, replicasets]
matchConditions:
- name: ours
  expression: "{{ include "muster.oursCEL" (list . (include "muster.templateCEL" "object")) }}"
- name: in-place
  expression: "'muster.dev/gpus' in {{ include "muster.templateCEL" "object" }}.?metadata.?annotations.orValue({})"
- name: is-new
  expression: "request.operation == 'CREATE' || {{ include "muster.templateCEL" "object" }} != {{ include "muster.templateCEL" "oldObject" }}"
{{- end -}}

{{/* CEL: container `c` runs the agent: `muster-agent ... --devices ... -- COMMAND`, `muster agent ...` or `python -m muster_report.agent ...`. */}}
{{- define "muster.agentCEL" -}}
{{- $words := "(c.command + c.?args.orValue([]))" -}}
(c.?command.orValue([]).size() > 0 && c.command.size() + c.?args.orValue([]).size() > 3 && (
{{ $words }}[0].matches('^(.*/)?muster-agent$') || ({{ $words }}[0].matches('^(.*/)?muster$') && {{ $words }}[1] == 'agent')
|| ({{ $words }}[0].matches('^(.*/)?python[0-9.]*$') && {{ $words }}.indexOf('-m') in [1, 2] && {{ $words }}[{{ $words }}.indexOf('-m') + 1] in ['muster_report.agent', 'muster.agent']
&& ({{ $words }}.indexOf('-m') == 1 || {{ $words }}[1].matches('^-[BEIOPqsSuv]+$'))))
&& '--devices' in {{ $words }} && {{ $words }}.indexOf('--devices') < {{ $words }}.indexOf('--') && {{ $words }}.indexOf('--') + 1 < {{ $words }}.size())
{{- end -}}
