# The papers' figures, target against result; included by the Makefile after demo.mk (QUICK is set there).

PAPERS =

.PHONY: reproduce
reproduce: $(STAMP) ## The papers' figures, target against result: QUICK=1 PAPERS="afs gavel"; TRACES=folder of traces
	@QUICK='$(filter-out 0,$(QUICK))' $(BIN)/python -m e2e.reproduce $(PAPERS)
