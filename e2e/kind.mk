# Muster on kind; included by the Makefile. On stdout there is only the line to be evaluated: eval "$(make kind | tail -1)".
NODE_IMAGE =
# What `make e2e-kind` runs; a part of it: E2E_KIND_FILES="e2e/test_gangs.py e2e/test_binder.py".
E2E_KIND_FILES = e2e e2e/kind/helm_tested.py
# Whole gangs, their order, every owner that Kubernetes brings along, doctor and `helm test`, with Muster as pods. What is the same on
# a lab is left to that: shares (they change hands in the quickstart, too), and a thousand pods of fake nodes.
KIND_SHORT = e2e/test_gangs.py e2e/test_doctor.py e2e/test_owners.py e2e/kind/helm_tested.py \
	--deselect e2e/test_gangs.py::test_1000_pods_at_once_all_run_and_never_too_many

kind_python = .venv/bin/python
kind_options = $(if $(K8S),--k8s '$(K8S)') $(if $(NODE_IMAGE),--node-image '$(NODE_IMAGE)') --nodes '$(NODES)' --gpus '$(GPUS)' \
	$(foreach file,$(VALUES),--values '$(file)') $(foreach value,$(SET),--set '$(value)')

.PHONY: kind kind-down kind-image kind-check quickstart-kind e2e-kind e2e-kind-short

kind: $(STAMP) ## A kind cluster with this checkout's image and chart: K8S=1.37 NODE_IMAGE=kindest/node:... NODES=16 GPUS=8
	@$(kind_python) -m e2e.kind up $(kind_options)

kind-down: $(STAMP) ## Delete the kind cluster (images stay)
	@$(kind_python) -m e2e.kind down --engine

kind-image: $(STAMP) ## Pull kind's node image, or build one, into Docker
	@$(kind_python) -m e2e.kind image $(if $(K8S),--k8s '$(K8S)') $(if $(NODE_IMAGE),--node-image '$(NODE_IMAGE)')

kind-check: $(STAMP) ## Whether kind can run here: Docker, privileged containers, a node image
	@$(kind_python) -m e2e.kind check $(if $(K8S),--k8s '$(K8S)')

quickstart-kind: $(STAMP) ## config/quickstart.md as it stands, from its cluster (a new one, or the one that is there) to its end: 3 minutes
	@$(BIN)/pytest -v e2e/kind/quickstart.py

e2e-kind: kind ## Scenarios on the kind cluster; what it can't do is skipped, with the reason
	@E2E_KIND=true E2E_KUBECONFIG="$$($(kind_python) -m e2e.kind kubeconfig)" $(BIN)/pytest -v $(E2E_KIND_FILES)

e2e-kind-short: ## A part of them, that of .ci/run: 44 in 3:35, 5 minutes with the cluster, 4 more the first time
	@$(MAKE) e2e-kind E2E_KIND_FILES='$(KIND_SHORT)'
