# The soak's target; included by the Makefile after lab.mk and demo.mk (SEED).

SOAK_SECONDS = 600
SOAK =

.PHONY: soak
soak: lab-build ## Elastic jobs come and go, a referee watches: SOAK_SECONDS=600 SEED=1 SOAK="--rate 50 --profile afs-l"
	@$(lab_python) -m e2e.soak --seconds '$(SOAK_SECONDS)' --seed '$(SEED)' $(SOAK)
