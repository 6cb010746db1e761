# A stand-in for python:3.11-slim: Debian's Python 3.11 under the name that the official image has, and this machine's certificates
# (a package mirror may have one of its own).
ARG DEBIAN
FROM ${DEBIAN}
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      ca-certificates python3.11 python3-pip > /dev/null && \
    ln -s python3.11 /usr/bin/python && rm /usr/lib/python3.11/EXTERNALLY-MANAGED && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
