# The soak's target; included by the Makefile after lab.mk.

SECONDS_LONG = 600
SOAK =

.PHONY: soak
soak: lab-build ## Ten minutes of elastic jobs coming and going, watched by a referee: SECONDS_LONG=600 SEED=1 SOAK="--rate 50"
	@$(lab_python) -m e2e.soak --seconds '$(SECONDS_LONG)' --seed '$(SEED)' $(SOAK)
