# The lab's targets; included by the Makefile, and usable alone: make -f e2e/lab.mk lab.
# On stdout there is only the line to be evaluated: eval "$(make lab | tail -1)".

MAKEFLAGS += --no-print-directory

# Not ?=: the environment of some shells has a NAME of its own.
NAME = default
NODES = 16
GPUS = 8
PRODUCT =
GPU_MEMORY =
RACKS =
ZONES =
SHAPE =
K8S =
CHART = 1
SCHEDULER = 1
REPLICAS = 1
PROFILE =
VALUES =
SET =
FEATURE_GATES =
APISERVER_ARGS =
SCHEDULER_ARGS =
REAL =
REAL_GPUS =
AUDIT =
OPERATORS =
ONLY =

lab_python = .venv/bin/python
lab_options = --name '$(NAME)' \
	$(if $(SHAPE),--shape '$(SHAPE)',--nodes '$(NODES)' --gpus '$(GPUS)') \
	$(if $(PRODUCT),--product '$(PRODUCT)') $(if $(GPU_MEMORY),--gpu-memory '$(GPU_MEMORY)') \
	$(if $(RACKS),--racks '$(RACKS)') $(if $(ZONES),--zones '$(ZONES)') $(if $(K8S),--k8s '$(K8S)') \
	$(if $(filter 0,$(CHART)),--no-chart) $(if $(filter 0,$(SCHEDULER)),--no-scheduler) --replicas '$(REPLICAS)' \
	$(if $(PROFILE),--profile '$(PROFILE)') $(foreach file,$(VALUES),--values '$(file)') \
	$(foreach value,$(SET),--set '$(value)') $(foreach gate,$(FEATURE_GATES),--feature-gate '$(gate)') \
	$(foreach flag,$(APISERVER_ARGS),--apiserver-arg='$(flag)') \
	$(foreach flag,$(SCHEDULER_ARGS),--scheduler-arg='$(flag)') \
	$(if $(REAL),--real '$(REAL)') $(if $(REAL_GPUS),--real-gpus '$(REAL_GPUS)') $(if $(filter 1,$(AUDIT)),--audit) \
	$(if $(OPERATORS),--operators '$(OPERATORS)')

.PHONY: lab lab-down lab-build

lab: ## Start a lab: NAME=default NODES=16 GPUS=8 (CHART=0: without Muster; more in e2e/README.md)
	@test -x $(lab_python) || $(MAKE) setup >&2
	@$(lab_python) -m e2e.lab up $(lab_options)

lab-down: ## End the lab NAME=default, if there is one
	@test -x $(lab_python) || $(MAKE) setup >&2
	@$(lab_python) -m e2e.lab down --name '$(NAME)'

lab-build: ## Build the lab's programs into the cache now (K8S=1.34 for the oldest supported Kubernetes; REAL=1: a real node's, OPERATORS=jobset,trainer: theirs, too; ONLY=helm: this one alone)
	@test -x $(lab_python) || $(MAKE) setup >&2
	@$(lab_python) -m e2e.lab build $(if $(K8S),--k8s '$(K8S)') $(if $(REAL),--real) \
		$(if $(OPERATORS),--operators '$(OPERATORS)') $(if $(ONLY),--only '$(ONLY)')

.PHONY: operators
operators: $(STAMP) ## Build every operator in its versions, and run the scenarios of all, the long ones too: 40 minutes to build once, as long to run (some: OPERATORS=lws,kueue@v0.14.8)
	@$(lab_python) -m e2e.all_operators $(if $(OPERATORS),--operators '$(OPERATORS)') -- $(SIDE_BY_SIDE)
