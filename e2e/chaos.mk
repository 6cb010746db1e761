# Chaos' target; included by the Makefile after lab.mk and demo.mk (SEED).

CHAOS_SECONDS = 600
CHAOS =

.PHONY: chaos bad-days families-failing devices-failing
chaos: lab-build ## Jobs come and go while everything breaks, a referee watches: CHAOS_SECONDS=600 SEED=1 CHAOS="--rate 20 --profile afs-l"
	@$(lab_python) -m e2e.chaos --seconds '$(CHAOS_SECONDS)' --seed '$(SEED)' $(CHAOS)

bad-days: lab-build ## A minute of chaos under one policy of each family: half an hour (SEED=1 CHAOS="--rate 60")
	@$(lab_python) -m e2e.chaos --profile all --seconds 60 --seed '$(SEED)' --name bad-days --out out/bad-days $(CHAOS)

families-failing: lab-build ## Each family of policies beside a silent job, a liar and a rigid one, Muster killed twice: 15 minutes
	@E2E_LONG=true $(BIN)/pytest -v e2e/test_families_failing.py

devices-failing: lab-build ## What goes wrong with devices in place, on a real node: 20 minutes
	@$(BIN)/pytest -v e2e/devices_failing.py
