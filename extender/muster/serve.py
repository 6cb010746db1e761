"""`muster serve`: the driver, the service port and the configuration in one process, the verbs in another."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path
from types import FrameType

from prometheus_client import CollectorRegistry, Counter, Histogram

from muster import threads
from muster.cluster.api import Api
from muster.cluster.credentials import configuration
from muster.cluster.election import campaign
from muster.cluster.faults import Faults
from muster.cluster.learned_store import learned_by
from muster.cluster.trainer import TrainerStatus
from muster.core.state.quarantine import STAGES
from muster.core.views.view import Board, empty_view
from muster.device_driver import in_place_settings
from muster.errors import ConfigurationError, MusterError
from muster.live import Driver, Settled
from muster.no_effect import no_effect
from muster.secured import Secured
from muster.server.access import ReviewedAccess, ReviewedPods
from muster.server.answering import Answering, sendable
from muster.server.device_metrics import DeviceMetrics
from muster.server.extender_metrics import ExtenderMetrics
from muster.server.kube_scheduler import Beside, configure
from muster.server.resize_metrics import Resizes
from muster.server.service import make_service_app
from muster.server.stumbles import Stumbles
from muster.server.tls import Ends
from muster.server.web import Bounded, ForAgents, web_server
from muster.server.webhook import Admits, make_webhook_app
from muster.settings import Settings, load_settings, profile_of, until_restarted
from muster.turns import Turns
from muster.types import Plan

log = logging.getLogger(__name__)

RELOAD_EVERY = 0.5
"""Seconds between looks at the configuration file."""


def serve(config_file: Path, kubeconfig: str | None, scheduler_pipe: Path | None = None) -> None:
    """Run until SIGTERM or SIGINT. Raises ConfigurationError when the first configuration can't be used, MusterError
    when it can't go on.

    scheduler_pipe: where the kube-scheduler beside reads the scheduler.yaml that lies beside `config_file`."""
    settings = load_settings(config_file)
    allow_open_files()
    profile = sendable(profile_of(settings))
    for says in no_effect(settings):
        log.warning("configuration: %s; it has no effect", says)
    faults = Faults.from_environment()
    if faults.rules:
        log.warning("fault injection is on: %s", faults.rules)
        threads.Supervised.injected = staticmethod(partial(faults.step, "THREAD"))
    credentials = configuration(kubeconfig)
    api = Api(credentials, faults)
    board = Board(empty_view(profile))
    secured = Secured(settings, api)
    driver = Driver(api, board, _settled(settings, secured), profile)
    if faults.rules:
        driver.injected = partial(faults.step, "CYCLE")
    registry = CollectorRegistry()
    registry.register(threads.ThreadErrors())
    driver.observe_cycle = cycle_metrics(registry, board)
    quarantined, failed, reported = driver_metrics(registry)
    driver.quarantined = lambda stage: quarantined.labels(stage).inc()
    board.aside = Stumbles(quarantined.labels("page").inc).aside
    driver.failed, driver.observe_report = failed.inc, reported.observe
    if settings.devices.enabled:
        driver.count_devices(DeviceMetrics(registry))
    access = ReviewedAccess(api.request, for_api_server=settings.readers.api_server_tokens)
    registry.register(Ends(secured.of))
    verbs = None
    if settings.binder == "own":  # else the cluster's scheduler binds, and nobody calls the verbs
        verbs = Answering(settings.ports.extender, settings.scheduler_name, ExtenderMetrics(registry))
        driver.opened = lambda: verbs.opened
        driver.shown = verbs.show
    webhook = None
    if settings.webhook is not None:
        webhook = web_server(
            make_webhook_app(_admits(settings, secured)),
            settings.ports.address,
            settings.webhook.port,
            secured.of["webhook"],
        )

    def closed() -> list[str]:
        """What nobody can call yet, or just now."""
        opens = {"extender": verbs is None or verbs.open, "webhook": webhook is None or webhook.started}
        return [f"the port of the {name}" for name, opened in opens.items() if not opened]

    def ailing() -> list[str]:
        """What /healthz names: threads, the circle, and the process of the verbs."""
        now = time.monotonic()
        circle = driver.ailing(now, settings.health.cycle)
        return [*threads.ailing(now), *circle, *(verbs.ailing(now) if verbs is not None else ())]

    service = web_server(
        make_service_app(
            board,
            access,
            registry,
            lambda: driver.missing,
            closed,
            reports=driver.take if settings.reporting.enabled else None,
            pods=ReviewedPods(api.request),
            agents=(driver.orders, driver.hear) if settings.devices.enabled else None,
            holders=(driver.holder, driver.note) if settings.devices.report == "hold" else None,
            beside=Beside() if settings.own_scheduler else None,
            ailing=ailing,
        ),
        settings.ports.address,
        settings.ports.service,
        secured.of.get("service"),
        protocol=ForAgents if settings.devices.enabled else Bounded,
    )

    servers = [service, *([webhook] if webhook is not None else [])]
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        log.info("ending on signal %d", number)
        ended.set()
        for server in servers:
            server.should_exit = True
        if verbs is not None:
            verbs.stop()
        driver.stop()

    broken: list[str] = []

    def give_up(why: str) -> None:
        """In the thread that can't go on. The kubelet starts the container again, and shows the last lines."""
        if ended.is_set():
            return
        log.critical("%s; muster ends", why)
        broken.append(why)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(threads.GRACE)
        os._exit(1)

    threads.Supervised.ends = staticmethod(give_up)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if scheduler_pipe is not None:
        configure(config_file.with_name("scheduler.yaml"), scheduler_pipe, ended)
    driver.start()
    trainer = TrainerStatus(api, board, driver.take) if settings.reporting.enabled else None
    if trainer is not None:
        trainer.start()
    turns = Turns(board, driver.take, lambda: driver.starting)
    turns.start()
    if settings.leader.own:
        campaign(credentials, settings.leader.namespace, settings.leader.lease, socket.gethostname(), ended)
    serving = [threads.supervised("service", service.run, vital=True)]
    if webhook is not None:
        serving.append(threads.supervised("webhook", webhook.run, vital=True))
    if verbs is not None:
        serving.append(verbs.start())
    if secured.of:
        threads.supervised("certificates", partial(secured.run, ended), within=5 * threads.STALLED)
    threads.supervised(
        "reload", partial(_reload, config_file, settings, driver, ended), within=threads.STALLED
    )
    driver.run()
    ended.set()
    turns.stop()
    if trainer is not None:
        trainer.stop()
    for thread in serving:
        thread.join(timeout=5.0)
    if broken:
        raise MusterError(broken[0])


def allow_open_files() -> None:
    """As many as may be: each agent beside a training holds a connection, and 1,024 is what many machines give."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != most:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        except (OSError, ValueError) as error:
            log.warning("open files: at most %d, since %d was refused: %s", soft, most, error)


def _admits(settings: Settings, secured: Secured) -> Admits:
    return Admits(
        gate=settings.mode == "active",
        scheduler=settings.scheduler_name,
        binder=settings.cluster_scheduler if settings.binder == "cluster" else "",
        lets_on=settings.lets_on,
        report_url=settings.reporting.url if settings.reporting.enabled else "",
        authority=secured.authority if settings.reporting.tell_authority else bytes,
    )


def _settled(settings: Settings, secured: Secured) -> Settled:
    return Settled(
        scheduler=settings.scheduler_name,
        observe=settings.mode == "observe",
        lease_namespace=settings.leader.namespace,
        lease_name=settings.leader.lease,
        learned=learned_by(settings.leader.lease) if settings.reporting.enabled else "",
        devices=in_place_settings(settings, secured.authority) if settings.devices.enabled else None,
        lets_on=settings.lets_on,
    )


def _reload(config_file: Path, settings: Settings, driver: Driver, ended: threading.Event) -> None:
    """A changed file is read again; what can't change while running, and a bad file, is said and left. It may have
    changed since `settings`, those of the start, were read from it, before this thread had begun."""
    text = None
    while not ended.wait(RELOAD_EVERY):
        threads.beat()
        try:
            found = config_file.read_text(encoding="utf-8")
        except OSError as error:
            log.error("configuration: %s; the last good one stays in force", error)
            continue
        if found == text:
            continue
        first, text = text is None, found
        try:
            fresh = load_settings(config_file)
            if first and fresh == settings:
                continue
            profile_of(fresh)  # what is wrong with the file itself comes first
            now, later = until_restarted(fresh, settings)
            for key in later:
                log.warning("configuration: %s takes effect at the next start only", key)
            driver.use(sendable(profile_of(now)))
            for says in no_effect(now):
                log.warning("configuration: %s; it has no effect", says)
        except ConfigurationError as error:
            log.error("configuration: %s\nthe last good one stays in force", error)
            continue
        log.info("configuration: profile %s, order %s now in force", fresh.profile, fresh.order)


def driver_metrics(registry: CollectorRegistry) -> tuple[Counter, Counter, Histogram]:
    """Objects put aside by stage, cycles that failed, and how long reports take to reach a plan."""
    quarantined = Counter(
        "muster_quarantined",
        "Times that an object or a job was put aside because code raised over it; the log has the first.",
        ["stage"],
        registry=registry,
    )
    for stage in STAGES:
        quarantined.labels(stage)
    failed = Counter(
        "muster_cycles_failed",
        "Cycles that failed as a whole; the next one begins from scratch.",
        registry=registry,
    )
    reported = Histogram(
        "muster_report_to_plan_seconds",
        "From a report with something new (a speed, a total, a boundary) to the plan that uses it.",
        buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
        registry=registry,
    )
    return quarantined, failed, reported


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
    return Observe(seconds, complaints, Resizes(registry, lambda key, error: board.aside(key, error)), board)


class Observe:
    """Called after each cycle by the driver, whose View is on the board then."""

    def __init__(self, seconds: Histogram, complaints: Counter, resizes: Resizes, board: Board) -> None:
        self._seconds, self._complaints, self._resizes, self._board = seconds, complaints, resizes, board

    def __call__(self, seconds: float, plan: Plan) -> None:
        self._seconds.observe(seconds)
        self._complaints.inc(len(plan.plugin_errors))
        self._resizes.look(self._board.view)
