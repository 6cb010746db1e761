# Muster's image: `muster serve`, `muster release`, `muster explain`. kube-scheduler is the stock image beside it.
#   docker build -t REGISTRY/muster:0.1.0 .
# The Python that the tests run with. A release gives it by digest (make image RELEASE=1 BASE=python:3.11-slim@sha256:...): a tag is
# whatever the registry says today.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /source
COPY config/requirements.txt config/build-requirements.txt ./
# Every file is known by its hash (`make requirements` writes them from config/constraints.txt), and nothing else is installed: the same
# commit gives the same image. Bytecode is compiled here: the file system is read-only when it runs.
# Plain RUN and COPY: any builder will do, also one without BuildKit.
RUN python -m venv --without-pip /opt/muster && \
    pip --python /opt/muster install --no-cache-dir --root-user-action ignore --require-hashes -r requirements.txt && \
    pip install --no-cache-dir --root-user-action ignore --require-hashes -r build-requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY extender extender
COPY plugins plugins
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels . ./extender/report && \
    pip --python /opt/muster install --no-cache-dir --root-user-action ignore --no-deps /wheels/*.whl

FROM ${BASE}
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH PYTHONUNBUFFERED=1
# As in the chart's securityContext; a number, so that runAsNonRoot can be checked.
USER 65532:65532
# service, webhook. The extender's port is on loopback only.
EXPOSE 8080 9443
ENTRYPOINT ["muster"]
CMD ["--help"]
