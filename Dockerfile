# Muster's image: `muster serve`, `muster release`, `muster explain`. kube-scheduler is the stock image beside it.
#   docker build -t REGISTRY/muster:0.1.0 .
# The Python that the tests run with.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY config/constraints.txt ./constraints.txt
COPY extender extender
COPY plugins plugins
# Every version is pinned: the same commit gives the same image. Bytecode is compiled here: the file system is read-only when it runs.
# Plain RUN and COPY: any builder will do, also one without BuildKit.
RUN python -m venv --without-pip /opt/muster && \
    PIP_CONSTRAINT=constraints.txt pip --python /opt/muster install --no-cache-dir --root-user-action ignore .

FROM python:${PYTHON}-slim
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH PYTHONUNBUFFERED=1
# As in the chart's securityContext; a number, so that runAsNonRoot can be checked.
USER 65532:65532
# service, webhook. The extender's port is on loopback only.
EXPOSE 8080 9443
ENTRYPOINT ["muster"]
CMD ["--help"]
