# The measures of issue 3; included by the Makefile.

LONG =

# Those with a target of their own. `make bench peers` is peers alone: the 20 minutes of all the others would come first.
MEASURES = inplace papers peers policies workload-one

.PHONY: bench $(MEASURES)
bench: lab-build ## Measure: tables on stdout, JSON in out/bench (LONG=1: the long ones too; one: python -m e2e.bench --help)
	@$(if $(filter $(MEASURES),$(MAKECMDGOALS)),:,$(lab_python) -m e2e.bench all $(if $(filter 1,$(LONG)),--long))

inplace: lab-build ## Measure: one GPU handed from a job to another, in place against evict and gate (INPLACE="--in-a-row 50")
	@$(lab_python) -m e2e.bench inplace $(INPLACE)

peers: lab-build ## Measure: Kueue, Volcano, native gangs, the stock scheduler and Muster side by side (hours; PEERS=options); goes on where it was cut off
	@$(lab_python) -m e2e.bench peers $(PEERS)

policies: lab-build ## Measure: each family of policies, live and simulated, on the same jobs; goes on where it was cut off
	@$(lab_python) -m e2e.bench policies $(POLICIES)

papers: lab-build ## Measure: policies on the jobs of their own papers, which report, live and simulated (PAPERS=options); goes on where it was cut off
	@$(lab_python) -m e2e.bench papers $(PAPERS)

workload-one: lab-build ## Measure: the SideCar paper's Workload One, four profiles live and simulated (25 minutes; WORKLOAD_ONE=options); goes on where it was cut off
	@$(lab_python) -m e2e.bench workload-one $(WORKLOAD_ONE)
