# The demo's target; included by the Makefile after lab.mk.
# Of NAME only what the command line says counts (some shells have one of their own): the demo's lab is `demo`.

TRACE =
HOUR =
CLUSTER =
SEED = 1
SPEED =
KEEP =
QUICK =
DEMO =

demo_name = $(if $(filter command line,$(origin NAME)),$(NAME),demo)
demo_options = --name '$(demo_name)' --seed '$(SEED)' \
	$(if $(TRACE),--trace '$(TRACE)') $(if $(HOUR),--hour '$(HOUR)') $(if $(CLUSTER),--cluster '$(CLUSTER)') \
	$(if $(SPEED),--speed '$(SPEED)') $(if $(filter-out 0,$(QUICK)),--quick) $(if $(filter-out 0,$(KEEP)),--keep) \
	$(DEMO)

.PHONY: demo

demo: $(STAMP) ## A busy hour with the default scheduler, with Muster's gangs, with elastic jobs: TRACE=philly.csv.gz HOUR= SEED=1 QUICK=1 KEEP=1
	@test -x .venv/bin/python || $(MAKE) setup >&2
	@.venv/bin/python -m e2e.demo $(demo_options)
