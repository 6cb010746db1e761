# What a release is made of; included by the Makefile, called by .github/workflows/release.yaml step by step.
VERSION = $(shell awk -F'"' '/^version = /{print $$2}' pyproject.toml)
REGISTRY =
DIGEST =
# Where the repository is: https://github.com/me/muster. At the tag vVERSION it has the docs of that version.
SOURCE =
TAG =
PLATFORMS = linux/amd64,linux/arm64
RELEASE_IMAGE = $(REGISTRY)/muster:$(VERSION)
# Distributions: muster-scheduler and muster-report, of one version.
DISTRIBUTIONS = . extender/report
report_version = $(shell awk -F'"' '/^version = /{print $$2}' extender/report/pyproject.toml)
chart_version = $(shell sed -n 's/^version: //p' charts/muster/Chart.yaml)
app_version = $(shell sed -n 's/^appVersion: //p' charts/muster/Chart.yaml | tr -d '"')
helm = $(shell $(BIN)/python -m e2e.lab build --only helm 2>/dev/null | cut -f2)
cosign = COSIGN_YES=true cosign

.PHONY: check-workflows release-version image-push image-sign chart chart-push packages release-notes release-publish

check-workflows: $(STAMP) ## lint .github/workflows by actionlint (built once from its Go module)
	@"$$($(BIN)/python -m e2e.lab build --only actionlint | cut -f2)" -shellcheck= -pyflakes=

release-version: ## TAG=v0.1.0 is the version of both distributions and of the chart
	@[ '$(TAG)' = 'v$(VERSION)' ] && [ '$(report_version)' = '$(VERSION)' ] && [ '$(chart_version)' = '$(VERSION)' ] && [ '$(app_version)' = '$(VERSION)' ] || { \
		echo "make release-version: TAG=$(TAG), but pyproject.toml has $(VERSION), extender/report/pyproject.toml $(report_version), the chart $(chart_version) (appVersion $(app_version))" >&2; \
		exit 2; }

registry:
	@[ -n '$(REGISTRY)' ] || { echo "make: REGISTRY= is missing, e.g. REGISTRY=ghcr.io/me" >&2; exit 2; }

image-push: registry ## Muster's image for all PLATFORMS to REGISTRY, on the Python that the tag names now, by digest; its digest on stdout
	@mkdir -p out
	@base="python:3.11-slim@$$(docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}')" && \
		$(MAKE) base RELEASE=1 BASE="$$base" && \
		docker buildx build --platform '$(PLATFORMS)' --build-arg BASE="$$base" --sbom=true --provenance=mode=max \
			--metadata-file out/image.json --tag '$(RELEASE_IMAGE)' --push .
	@digest=$$($(PYTHON) -c 'import json; print(json.load(open("out/image.json"))["containerimage.digest"])') && echo "$$digest" && \
		if [ -n "$(GITHUB_OUTPUT)" ]; then echo "digest=$$digest" >> "$(GITHUB_OUTPUT)"; fi

image-sign: registry ## sign REGISTRY/muster@DIGEST and attach out/muster.cdx.json (make sbom), by cosign
	@[ -n '$(DIGEST)' ] || { echo "make image-sign: DIGEST= is missing (make image-push prints it)" >&2; exit 2; }
	@$(cosign) sign '$(REGISTRY)/muster@$(DIGEST)'
	@$(cosign) attest --type cyclonedx --predicate out/muster.cdx.json '$(REGISTRY)/muster@$(DIGEST)'

chart: registry $(STAMP) ## out/chart/muster-VERSION.tgz, whose image is REGISTRY/muster at DIGEST, and which says that it is from SOURCE
	@[ -n '$(SOURCE)' ] || { echo "make chart: SOURCE= is missing, e.g. SOURCE=https://github.com/me/muster" >&2; exit 2; }
	@rm -rf out/chart && mkdir -p out/chart && cp -r charts/muster out/chart/muster
	@sed -i 's|^  repository: ""$$|  repository: "$(REGISTRY)/muster"|; s|^  digest: ""$$|  digest: "$(DIGEST)"|' out/chart/muster/values.yaml
	@grep -q '^  repository: "$(REGISTRY)/muster"$$' out/chart/muster/values.yaml && grep -q '^  digest: "$(DIGEST)"$$' out/chart/muster/values.yaml
	@sed -i '/^# `make chart/d; s|^- name: The Muster maintainers$$|&\n  url: $(SOURCE)/blob/v$(VERSION)/.github/MAINTAINERS.md|' out/chart/muster/Chart.yaml
	@printf '%s\n' 'home: $(SOURCE)/tree/v$(VERSION)' 'sources:' '- $(SOURCE)/tree/v$(VERSION)/charts/muster' >> out/chart/muster/Chart.yaml
	@$(helm) package out/chart/muster --destination out/chart >&2

HELM_PUSH =
chart-push: registry $(STAMP) ## the packaged chart to oci://REGISTRY/charts, signed by cosign where that is there (HELM_PUSH=--plain-http)
	@digest=$$($(helm) push out/chart/muster-*.tgz 'oci://$(REGISTRY)/charts' $(HELM_PUSH) 2>&1 | tee /dev/stderr | sed -n 's/^Digest: //p') && \
		[ -n "$$digest" ] && if command -v cosign > /dev/null; then $(cosign) sign "$(REGISTRY)/charts/muster@$$digest"; fi

packages: $(STAMP) ## out/packages: wheel and source of each distribution
	@rm -rf out/packages
	@for one in $(DISTRIBUTIONS); do $(BIN)/pyproject-build --outdir out/packages $$one > /dev/null || exit 1; done; ls out/packages

release-notes: ## out/release-notes.md: the top section of CHANGELOG.md
	@mkdir -p out && awk '/^## /{n++} n==1 && !/^## /' CHANGELOG.md > out/release-notes.md && [ -s out/release-notes.md ]

release-publish: ## TAG=v0.1.0: a GitHub release with what lies in out/release, by gh
	@gh release create '$(TAG)' out/release/* --title '$(TAG)' --notes-file out/release-notes.md
