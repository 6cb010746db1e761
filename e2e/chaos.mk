# Chaos' target; included by the Makefile after lab.mk and demo.mk (SEED).

CHAOS_SECONDS = 600
CHAOS =

.PHONY: chaos
chaos: lab-build ## Jobs come and go while everything breaks, a referee watches: CHAOS_SECONDS=600 SEED=1 CHAOS="--rate 20 --profile afs-l"
	@$(lab_python) -m e2e.chaos --seconds '$(CHAOS_SECONDS)' --seed '$(SEED)' $(CHAOS)
