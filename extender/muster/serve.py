"""`muster serve`: the driver, the extender's port, the service port and the configuration, in one process."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp

from muster.cluster.api import Api, configuration
from muster.cluster.election import campaign
from muster.cluster.faults import Faults
from muster.cluster.shelf import learned_by
from muster.cluster.trainer import TrainerStatus
from muster.core.view import Board, empty_view
from muster.errors import ConfigurationError
from muster.live import Driver, Settled
from muster.server.access import ReviewedAccess, ReviewedPods
from muster.server.beside import Beside, configure
from muster.server.extender import make_extender_app
from muster.server.resizes import Resizes
from muster.server.service import make_service_app
from muster.server.webhook import Admits, make_webhook_app
from muster.settings import Settings, load_settings, profile_of
from muster.types import Plan

log = logging.getLogger(__name__)

RELOAD_EVERY = 0.5
"""Seconds between looks at the configuration file."""
KEPT = 120
"""Seconds for which an idle connection of a kube-scheduler is kept: longer than it does (90). A POST on a connection
that is just being closed is lost, and it repeats none."""


def serve(config_file: Path, kubeconfig: str | None, scheduler_pipe: Path | None = None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigurationError when the first configuration can't be used.

    scheduler_pipe: where the kube-scheduler beside reads the scheduler.yaml that lies beside `config_file`."""
    settings = load_settings(config_file)
    profile = profile_of(settings)
    faults = Faults.from_environment()
    if faults.rules:
        log.warning("fault injection is on: %s", faults.rules)
    credentials = configuration(kubeconfig)
    api = Api(credentials, faults)
    board = Board(empty_view(profile))
    driver = Driver(api, board, _settled(settings), profile)
    registry = CollectorRegistry()
    driver.observe_cycle = cycle_metrics(registry, board)
    driver.observe_report = Histogram(
        "muster_report_to_plan_seconds",
        "From a report that tells something new (a speed, a total, a boundary) to the plan that knows it.",
        buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
        registry=registry,
    ).observe
    access = ReviewedAccess(api.request)
    called: dict[str, uvicorn.Server] = {}  # by kube-scheduler and the API server
    if settings.binder == "own":  # else the cluster's scheduler binds, and nobody calls the verbs
        verbs = make_extender_app(board, registry, settings.scheduler_name)
        called["extender"] = extender = _server(verbs, "127.0.0.1", settings.ports.extender, idle=KEPT)
        driver.opened = lambda: extender.started
    if settings.webhook is not None:
        called["webhook"] = _server(
            make_webhook_app(_admits(settings)),
            settings.ports.address,
            settings.webhook.port,
            Path(settings.webhook.certificates),
        )
    service = _server(
        make_service_app(
            board,
            access,
            registry,
            lambda: driver.missing,
            lambda: [f"the port of the {name}" for name, server in called.items() if not server.started],
            reports=driver.take if settings.reporting.enabled else None,
            pods=ReviewedPods(api.request),
            beside=Beside() if settings.binder == "own" and not settings.leader.own else None,
        ),
        settings.ports.address,
        settings.ports.service,
    )

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        log.info("ending on signal %d", number)
        for server in (service, *called.values()):
            server.should_exit = True
        driver.stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    ended = threading.Event()
    if scheduler_pipe is not None:
        configure(config_file.with_name("scheduler.yaml"), scheduler_pipe, ended)
    driver.start()
    trainer = TrainerStatus(api, board, driver.take) if settings.reporting.enabled else None
    if trainer is not None:
        trainer.start()
    if settings.leader.own:
        campaign(credentials, settings.leader.namespace, settings.leader.lease, socket.gethostname(), ended)
    threads = [threading.Thread(target=service.run, name="service", daemon=True)]
    threads[0].start()
    threading.Thread(
        target=_reload, args=(config_file, settings, driver, ended), name="reload", daemon=True
    ).start()

    def open_synced(server: uvicorn.Server) -> None:
        """The port opens after the first sync, so that nothing is refused for want of knowledge."""
        while not board.view.synced:
            if ended.wait(0.05):
                return
        server.run()

    for name, server in called.items():
        run = open_synced if name == "extender" else uvicorn.Server.run
        threads.append(threading.Thread(target=run, args=(server,), name=name, daemon=True))
        threads[-1].start()
    driver.run()
    ended.set()
    if trainer is not None:
        trainer.stop()
    for thread in threads:
        thread.join(timeout=5.0)


def _admits(settings: Settings) -> Admits:
    return Admits(
        gate=settings.mode == "active",
        scheduler=settings.scheduler_name,
        binder=settings.cluster_scheduler if settings.binder == "cluster" else "",
        report_url=settings.reporting.url if settings.reporting.enabled else "",
    )


def _settled(settings: Settings) -> Settled:
    return Settled(
        scheduler=settings.scheduler_name,
        observe=settings.mode == "observe",
        lease_namespace=settings.leader.namespace,
        lease_name=settings.leader.lease,
        learned=learned_by(settings.leader.lease) if settings.reporting.enabled else "",
    )


def _server(
    app: ASGIApp, host: str, port: int, certificates: Path | None = None, *, idle: int = 5
) -> uvicorn.Server:
    """A web server; HTTPS with tls.crt and tls.key of a folder. Raises ConfigurationError without them.

    idle: seconds after which it closes a connection on which nothing comes."""
    tls: dict[str, Any] = {}
    if certificates is not None:
        tls = {"ssl_certfile": certificates / "tls.crt", "ssl_keyfile": certificates / "tls.key"}
        missing = [str(path) for path in tls.values() if not path.is_file()]
        if missing:
            raise ConfigurationError(f"webhook.certificates: no file {' and '.join(missing)}")
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            http="httptools",
            proxy_headers=False,  # nobody reads the client's address
            timeout_keep_alive=idle,
            **tls,
        )
    )


def _reload(config_file: Path, settings: Settings, driver: Driver, ended: threading.Event) -> None:
    """A changed file is read again; what can't change while running, and a bad file, is said and left."""
    text = config_file.read_text(encoding="utf-8")
    while not ended.wait(RELOAD_EVERY):
        try:
            found = config_file.read_text(encoding="utf-8")
        except OSError as error:
            log.error("configuration: %s; the last good one stays in force", error)
            continue
        if found == text:
            continue
        text = found
        try:
            fresh = load_settings(config_file)
            driver.use(profile_of(fresh))
        except ConfigurationError as error:
            log.error("configuration: %s\nthe last good one stays in force", error)
            continue
        for field in ("scheduler_name", "mode", "binder", "leader", "ports"):
            if getattr(fresh, field) != getattr(settings, field):
                log.warning("configuration: %s takes effect at the next start only", field)
        log.info("configuration: profile %s, order %s now in force", fresh.profile, fresh.order)


def cycle_metrics(registry: CollectorRegistry, board: Board) -> Observe:
    """What is counted after each cycle."""
    seconds = Histogram(
        "muster_cycle_seconds",
        "Time of one cycle: snapshot, plan and diff.",
        buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
        registry=registry,
    )
    complaints = Counter(
        "muster_plugin_complaints", "Proposals of plugins that were not legal.", registry=registry
    )
    return Observe(seconds, complaints, Resizes(registry), board)


class Observe:
    """Called after each cycle by the driver, whose View is on the board then."""

    def __init__(self, seconds: Histogram, complaints: Counter, resizes: Resizes, board: Board) -> None:
        self._seconds, self._complaints, self._resizes, self._board = seconds, complaints, resizes, board

    def __call__(self, seconds: float, plan: Plan) -> None:
        self._seconds.observe(seconds)
        self._complaints.inc(len(plan.complaints))
        self._resizes.look(self._board.view)
