# Muster's image: `muster serve`, `muster release`, `muster explain`. kube-scheduler is the stock image beside it.
#   docker build -t REGISTRY/muster:0.1.0 .
# The Python that the tests run with.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheels
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY config/constraints.txt ./constraints.txt
COPY extender extender
COPY plugins plugins
# Every version is pinned: the same commit gives the same image.
RUN PIP_CONSTRAINT=constraints.txt pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:${PYTHON}-slim
# Bytecode is compiled at installation: the file system is read-only when it runs.
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels --root-user-action ignore muster
ENV PYTHONUNBUFFERED=1
# As in the chart's securityContext; a number, so that runAsNonRoot can be checked.
USER 65532:65532
# service, webhook. The extender's port is on loopback only.
EXPOSE 8080 9443
ENTRYPOINT ["muster"]
CMD ["--help"]
