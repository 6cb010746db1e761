# Chaos' target; included by the Makefile after lab.mk and demo.mk (SEED).

CHAOS_SECONDS = 600
CHAOS =

.PHONY: chaos devices-failing
chaos: lab-build ## Jobs come and go while everything breaks, a referee watches: CHAOS_SECONDS=600 SEED=1 CHAOS="--rate 20 --profile afs-l"
	@$(lab_python) -m e2e.chaos --seconds '$(CHAOS_SECONDS)' --seed '$(SEED)' $(CHAOS)

devices-failing: lab-build ## What goes wrong with devices in place, on a real node: 20 minutes
	@$(BIN)/pytest -v e2e/devices_failing.py
