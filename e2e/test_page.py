# Over 300 lines: every view of the page is tried with one browser.
"""The page in a real browser: on the lab with real jobs, and on made-up clusters that a lab can't be."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from socket import create_server

import pytest
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains

from e2e import browser
from e2e.browser import DOWN, ENTER, ESCAPE, RIGHT, TAB, Page
from e2e.cluster import Cluster
from e2e.elastic import has, only, shared_by, train
from e2e.lab import Lab
from e2e.scenario import (
    bound,
    delete_job,
    gang,
    gated,
    in_state,
    job,
    on_node,
    pod,
    runs_whole,
    show,
    wait_until,
)
from e2e.test_say_why import account, ask
from e2e.test_words import Training
from muster.core.views.view import Board, View
from muster.server.access import Verdict
from muster.server.service import make_service_app
from muster.types import Config, Facts, JobKey, Report
from tests.core.devices.circle import Circle
from tests.scenario import asks, node, snapshot
from tests.scenario import job as made_up
from tests.server.reading import viewed

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if why := browser.missing():
        pytest.skip(why)
    driver = browser.start(tmp_path_factory.mktemp("chromium"))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def expected(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Words of console lines that a scenario causes on purpose: @pytest.mark.parametrize("expected", ...)."""
    return tuple(getattr(request, "param", ()))


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures of the page go; PAGE_SHOTS=folder keeps them for looking at."""
    folder = Path(os.environ.get("PAGE_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def admin(cluster: Cluster, lab: Lab, namespace: str) -> Iterator[str]:
    """A token that reads all namespaces, once the API server knows of that."""
    token = account(cluster, namespace, "page-admin", "view", everywhere=True)
    wait_until(lambda: ask(lab, "/v1/jobs", token).status_code == 200, what="the right to read everything")
    yield token
    cluster.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{namespace}-page-admin")


@pytest.fixture
def page(chrome: Chrome, lab: Lab, admin: str, expected: tuple[str, ...]) -> Iterator[Page]:  # noqa: ARG001
    """The lab's page; in the end nothing was asked of anybody else, and the console is clean. `admin`
    keeps his rights until it asks no more."""
    opened = Page(chrome, lab.service_url())
    yield opened
    chrome.get("about:blank")  # it asks no more
    assert opened.faults(expected) == []


def on_nodes(cluster: Cluster, namespace: str, name: str) -> dict[str, int]:
    """GPUs of a Job's bound pods by node, from the API."""
    found: Counter[str] = Counter()
    for one in bound(cluster.pods(namespace, name)):
        found[one.node] += one.gpus
    return dict(found)


def drawn(page: Page, name: str, state: str = "bound") -> dict[str, int]:
    """GPUs that the picture shows for a job by node."""
    cells = {n: found[name, state] for n, found in page.cells().items()}
    return {n: count for n, count in cells.items() if count}


def waits(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    """All of it is there, and its Gang is Waiting: what the page shows from now on says so, too."""
    wait_until(
        lambda: (
            len(gated(cluster.pods(namespace, name))) == replicas
            and in_state(cluster, namespace, f"job-{name}", "Waiting")
        ),
        what=f"{name} waits whole",
        also=lambda: f"{show(cluster.pods(namespace))}\n{cluster.gangs(namespace)}",
    )


# ---- on the lab ----


@pytest.mark.lab
def test_the_picture_shows_who_has_what_and_the_queue_says_why(
    page: Page, cluster: Cluster, namespace: str, admin: str, shots: Path
) -> None:
    capacity = on_node("node-00", "node-01")
    foreign = pod("stranger", gpus=3, scheduler="default-scheduler", affinity=on_node("node-02"))
    cluster.submit(foreign, job("train", 3, gpus=4, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "train", 3)
    cluster.submit(job("large", 2, gpus=8, affinity=capacity), namespace=namespace)
    waits(cluster, namespace, "large", 2)  # a job is as old as its first pod
    cluster.submit(job("never", 3, gpus=16), namespace=namespace)
    waits(cluster, namespace, "never", 3)
    cluster.cordon("node-15")
    wait_until(
        lambda: (found := cluster.pod(namespace, "stranger")) and found.node, what="the stranger is bound"
    )

    page.open(admin)
    page.until(
        lambda: drawn(page, f"{namespace}/job-train") == on_nodes(cluster, namespace, "train"),
        "train's GPUs are where its pods are",
    )
    page.until(
        lambda: drawn(page, "pods that are not Muster's", "foreign") == {"node-02": 3}, "the stranger's"
    )
    page.until(
        lambda: drawn(page, "free, but the node is cordoned", "closed") == {"node-15": 8}, "the cordoned"
    )
    cells = page.cells()
    assert len(cells) == 16
    assert all(sum(found.values()) == 8 for found in cells.values())
    assert [e.text for e in page.all(".rack-name")] == ["rack-0", "rack-1", "rack-2", "rack-3"]
    queue = page.until(lambda: found if len(found := page.rows("queue")) == 2 else None, "two jobs wait")
    place, _, gpus, _, expected, why = queue[f"{namespace}/job-large"]
    assert (place, gpus) == ("1", "16")
    assert expected.startswith("not known: 1 job before it declares no run time")
    assert "needs 16 GPUs (2 replicas of 8)" in why
    assert "first in the queue" in why
    assert queue[f"{namespace}/job-never"][4] == "never, as the cluster is now"
    assert page.rows("jobs")[f"{namespace}/job-train"][1:3] == ["Running", "3/3"]
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.picture(shots / f"cluster-{scheme}.png")


@pytest.mark.lab
def test_a_job_that_grows_is_seen_to_grow_without_a_reload(
    page: Page, cluster: Cluster, namespace: str, admin: str
) -> None:
    capacity = on_node("node-03")
    cluster.submit(job("holder", 1, gpus=6, affinity=capacity), namespace=namespace)
    runs_whole(cluster, namespace, "holder", 1)
    elastic = job("grows", 4, gpus=2, min_replicas=1, max_replicas=4, success_on="0", affinity=capacity)
    cluster.submit(elastic, namespace=namespace)
    runs_whole(cluster, namespace, "grows", 1)

    page.open(admin)
    name = f"{namespace}/job-grows"
    page.until(lambda: drawn(page, name) == {"node-03": 2}, "one replica of two GPUs")
    look = page.until(lambda: page.cell(name).get_attribute("class"), "its look")
    page.script("window.stays = true")
    delete_job(cluster, namespace, "holder")
    page.until(lambda: drawn(page, name) == {"node-03": 8}, "four replicas of two GPUs")
    assert page.script("return window.stays") is True
    page.until(lambda: page.cell(name).get_attribute("class") == look, f"it still has the look {look}")
    page.until(lambda: page.rows("jobs")[name][2].startswith("4 of 1–4"), "the table says so, too")


@pytest.mark.lab
def test_shares_that_change_are_seen_and_what_training_reports_is_drawn(
    lab: Lab, page: Page, cluster: Cluster, namespace: str, admin: str, shots: Path
) -> None:
    only(lab, cluster, "node-00")
    first, second = f"{namespace}/job-first", f"{namespace}/job-second"
    with shared_by(lab, "max-min"):
        cluster.submit(train("first", most=8, speeds="1=1.0,4=3.0,8=4.0", work=36000), namespace=namespace)
        pods = has(cluster, namespace, "first", 8)
        page.open(admin, f"job={first}")
        page.until(lambda: drawn(page, first) == {"node-00": 8}, "first has all GPUs")
        page.until(lambda: "profile max-min" in page.says("header"), "the profile is named")
        page.until(lambda: "8 now, 1 to 8" in page.says("#job"), "and the job says so")

        # another arrives: half of them change their colour, and first is told why
        cluster.submit(train("second", most=8, work=36000), namespace=namespace)
        page.until(lambda: drawn(page, first) == {"node-00": 4}, "first has given half")
        page.until(lambda: drawn(page, second) == {"node-00": 4}, "second has it")
        page.until(lambda: "Why this share" in page.says("#job"), "first is told why")
        chart = page.until(lambda: page.all("#job svg")[0].get_attribute("aria-label"), "its share over time")
        assert chart.startswith("Share over time: "), chart
        # One resize, or one for each part of second's pods: these come as quickly as their controller makes them.
        page.until(
            lambda: (
                (count := gang(cluster, namespace, "job-first").get("resizes"))
                and f"{count}, the last " in page.says("#job dl")
            ),
            "its resizes",
        )

        # what its training reports becomes its progress and a point of its speed curve
        training = Training(lab, cluster, namespace, pods[0], total=100_000)

        def measured() -> bool:
            training.runs(12.0)
            return len(page.all("#job circle.measured")) == 1

        page.until(measured, "a measured speed", within=180)
        label = page.until(lambda: page.all("#job svg")[1].get_attribute("aria-label"), "its speed curve")
        assert label.startswith("Speed in iterations/s, measured: 4 replicas: 1"), label
        page.until(lambda: "Last report" in page.says("#job"), "its last report")
        page.picture(shots / "shares.png")

        # who waits is told when there is room for him, by the lengths and speeds that are believed
        cluster.submit(job("late", 1, gpus=8), namespace=namespace)
        late = f"{namespace}/job-late"
        page.until(lambda: page.rows("queue")[late][4].startswith("in "), "late waits, and knows how long")


@pytest.mark.lab
@pytest.mark.parametrize("expected", [("status of 404",)], indirect=True)
def test_a_job_opens_with_a_click_and_with_keys_and_stands_out_everywhere(
    page: Page, cluster: Cluster, namespace: str, admin: str, shots: Path
) -> None:
    cluster.submit(
        job(
            "train",
            2,
            gpus=2,
            affinity=on_node("node-00"),
            annotations={"muster.dev/speed": "1=1.0,2=1.8", "muster.dev/remaining-work": "90000"},
        ),
        job("other", 1, gpus=1, affinity=on_node("node-01")),
        namespace=namespace,
    )
    runs_whole(cluster, namespace, "train", 2)
    runs_whole(cluster, namespace, "other", 1)
    page.open(admin)
    name = f"{namespace}/job-train"
    page.until(lambda: drawn(page, name) == {"node-00": 4}, "train is drawn")

    # pointing at a cell lights all that is train's, here and in the table
    ActionChains(page.driver).move_to_element(page.cell(name)).perform()
    page.until(lambda: len(page.all(".node .cell.lit")) == 4, "its four cells stand out")
    page.until(
        lambda: [row.find_element("css selector", ".link").text for row in page.all("tr.lit")] == [name],
        "its row stands out, and no other",
    )
    page.until(lambda: page.says("#tip").startswith(name), "the tip names it")

    # keys: one stop for the Tab key in the picture, arrows from cell to cell, Enter, Escape
    page.focus('#picture .cell[tabindex="0"]')
    assert "node-00" in page.focused()
    page.press(DOWN)
    assert "node-01" in page.focused()
    page.focus(f'#picture .cell[data-tip="{name}"]')
    page.press(ENTER)
    page.until(lambda: name in page.says("#job h2"), "train is open")
    page.until(lambda: page.says("#job").count("node-00") == 2, "its two replicas are listed")
    for words in (
        "Running",
        "Expected end",
        "in 13h",
        "Resizes",
        "none so far",
        "Speed by replicas",
        "Job train",
    ):
        page.until(lambda words=words: words in page.says("#job"), f"{words!r} is told")  # type: ignore[misc]
    assert page.script("return document.activeElement.id") == "job"
    page.picture(shots / "job.png")
    page.press(ESCAPE)
    page.until(lambda: not page.find("#job").is_displayed(), "it is closed")
    assert name in page.focused()

    # the address says what is open, and a job that has ended is told of
    page.open(admin, f"job={name}")
    page.until(lambda: name in page.says("#job h2"), "train is open by its address")
    delete_job(cluster, namespace, "train")
    page.until(lambda: "it may have ended" in page.says("#job"), "the page says that train is gone")


@pytest.mark.lab
@pytest.mark.parametrize("expected", [("status of 403",)], indirect=True)
def test_a_tenant_sees_his_namespace_and_of_others_that_they_use_gpus(
    lab: Lab, page: Page, cluster: Cluster, namespace: str, new_namespace: Callable[[], str], shots: Path
) -> None:
    other = new_namespace()
    cluster.submit(job("theirs", 2, gpus=4, affinity=on_node("node-04")), namespace=other)
    runs_whole(cluster, other, "theirs", 2)
    cluster.submit(job("mine", 1, gpus=2, affinity=on_node("node-05")), namespace=namespace)
    cluster.submit(job("waits", 1, gpus=8, affinity=on_node("node-04")), namespace=namespace)
    runs_whole(cluster, namespace, "mine", 1)
    waits(cluster, namespace, "waits", 1)
    tenant = account(cluster, namespace, "tenant", "view")
    path = f"/v1/jobs?namespace={namespace}"
    wait_until(lambda: ask(lab, path, tenant).status_code == 200, what="the right to read his namespace")

    page.open(tenant)  # no namespace named: the token tells it
    page.until(
        lambda: page.find("#namespace").get_property("value") == namespace, "the page shows one namespace"
    )
    page.until(lambda: drawn(page, f"{namespace}/job-mine") == {"node-05": 2}, "mine is drawn")
    page.until(lambda: drawn(page, "other namespaces") == {"node-04": 8}, "the others' GPUs")
    sums = "8 of other namespaces"
    page.until(lambda: sums in " ".join(page.says("#sums").split()), sums)
    why = "held by 1 job of other namespaces"
    page.until(lambda: why in page.rows("queue")[f"{namespace}/job-waits"][5], why)
    document = page.script("return document.documentElement.outerHTML")
    assert other not in document
    assert "theirs" not in document
    page.picture(shots / "tenant.png")

    # what he may not read is refused in words, and he is asked again
    page.open(tenant, f"namespace={other}", shows=False)
    page.until(
        lambda: f"you may not list gangs.muster.dev in namespace {other}" in page.says("dialog"),
        "he is told so",
    )


@pytest.mark.lab
@pytest.mark.parametrize("expected", [("status of 401",)], indirect=True)
def test_a_token_is_asked_for_and_stays_in_the_tab(page: Page, admin: str, shots: Path) -> None:
    page.open()
    page.until(lambda: "kubectl create token" in page.says("dialog"), "the page says how to get a token")
    page.picture(shots / "token.png")
    assert [path for path in page.asked() if path.startswith("/v1")] == []
    page.find("#token").send_keys("forged", ENTER)
    page.until(
        lambda: "the API server does not know this token" in page.says("dialog"), "a forged one is refused"
    )
    page.find("#token").clear()
    page.find("#token").send_keys(admin, ENTER)
    page.until(lambda: len(page.cells()) == 16, "the cluster is shown")
    assert page.script("return [sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert admin not in page.driver.current_url
    assert admin not in " ".join(page.requests)
    page.driver.refresh()
    page.until(lambda: len(page.cells()) == 16, "a reload keeps it")
    page.find("#token-button").click()
    page.find("#forget").click()
    assert page.script("return sessionStorage.length") == 0
    assert not page.find("#main").is_displayed()


@pytest.mark.lab
def test_what_an_owner_writes_stays_text(page: Page, cluster: Cluster, namespace: str, admin: str) -> None:
    cluster.submit(job("evil", 1, gpus=1, annotations={"muster.dev/model": HOSTILE}), namespace=namespace)
    runs_whole(cluster, namespace, "evil", 1)
    page.open(admin, f"job={namespace}/job-evil")
    page.until(lambda: HOSTILE in page.says("#job"), "its model is told")
    assert page.script("return document.querySelectorAll('main img').length") == 0


# ---- made-up clusters ----


@dataclass
class Made:
    """The service on a made-up View, in this process. Tokens: "admin", and "tenant" of namespace team."""

    board: Board
    address: str = ""
    asked: list[str] = field(default_factory=list)

    def may_list(self, token: str, namespace: str | None) -> Verdict:
        self.asked.append(token)
        if token == "admin":
            return Verdict.ALLOWED
        if token == "tenant":
            return Verdict.ALLOWED if namespace == "team" else Verdict.DENIED
        return Verdict.UNKNOWN


@pytest.fixture
def made() -> Iterator[Callable[[View], Made]]:
    """`made(view)` serves it until the test ends."""
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def serve(view: View) -> Made:
        service = Made(Board(view))
        listening = create_server(("127.0.0.1", 0))  # the server closes it
        port = listening.getsockname()[1]
        app = make_service_app(service.board, service)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", http="httptools"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        servers.append((server, thread))
        wait_until(lambda: server.started, what="the service listens")
        service.address = f"http://127.0.0.1:{port}"
        return service

    yield serve
    for server, thread in servers:
        server.should_exit = True
        thread.join(timeout=60)


def test_500_nodes_and_1000_jobs_are_drawn_and_found(
    chrome: Chrome, made: Callable[[View], Made], shots: Path
) -> None:
    nodes = [
        node(f"gpu-{i:03d}", labels={"topology.kubernetes.io/rack": f"rack-{i // 16:02d}"})
        for i in range(500)
    ]
    now = time.time()
    jobs = [
        made_up(
            f"job-train-{i}",
            worker=4,
            gpus=1,
            on=[f"gpu-{i // 2:03d}"] * 4 if i < 900 else (),
            submitted=now - 5000.0 + i,
        )
        for i in range(900)
    ] + [made_up(f"job-big-{i}", worker=9 + i, gpus=8, submitted=now - 50.0 + i / 10) for i in range(100)]
    service = made(viewed(snapshot(nodes, jobs=jobs, now=now)))
    page = Page(chrome, service.address)
    page.open("admin")
    page.until(
        lambda: page.script("return document.querySelectorAll('.node .cell').length") == 4000, "4,000 cells"
    )
    assert len(page.all(".rack")) == 32
    assert page.shown_for("team/job-train-7") == 4
    # of the jobs a hundred at first, all when asked for
    assert len(page.rows("jobs")) == 100
    page.find("#jobs .more").click()
    page.until(lambda: len(page.rows("jobs")) >= 900, "all of them")
    page.find("#find").send_keys("train-77")
    page.until(lambda: len(page.rows("jobs")) == 11, "train-77 and train-770 to train-779")
    # nothing runs off the side, and the Tab key leaves the picture at once
    assert page.script("return document.documentElement.scrollWidth <= window.innerWidth") is True
    page.focus('#picture .cell[tabindex="0"]')
    page.press(RIGHT, TAB)
    assert page.script("return document.activeElement.closest('#picture')") is None
    page.picture(shots / "large.png")
    assert page.faults() == []


def test_what_jobs_are_called_is_never_markup(chrome: Chrome, made: Callable[[View], Made]) -> None:
    evil = [
        made_up(f"job-{HOSTILE}", worker=1, on=["n0"]),
        made_up('job-"><script>alert(2)</script>', worker=3, gpus=8),
        made_up("job-`${alert(3)}`", worker=1, on=["n0"]),
    ]
    view = viewed(snapshot([node("n0", labels={"topology.kubernetes.io/rack": HOSTILE})], jobs=evil))
    key = JobKey("team", f"job-{HOSTILE}")
    view = replace(view, plan=replace(view.plan, whys={key: f"why {HOSTILE}"}))
    service = made(view)
    page = Page(chrome, service.address)
    page.open("admin")
    page.until(lambda: page.shown_for(f"team/job-{HOSTILE}") == 1, "it is drawn")
    assert [e.text for e in page.all(".rack-name")] == [HOSTILE]
    ActionChains(page.driver).move_to_element(page.find(".node .cell.job")).perform()
    assert HOSTILE in page.until(lambda: page.says("#tip"), "the tip shows")
    page.find(".node .cell.job").click()
    page.until(lambda: f"why {HOSTILE}" in page.says("#job"), "why it has its share")
    counted = "return document.querySelectorAll('main img, main script, #tip img, iframe').length"
    assert page.script(counted) == 0
    # and where a text did become markup, the browser would refuse it
    refused = page.script(
        "try { document.body.innerHTML = '<b>x</b>'; return '' } catch (e) { return String(e) }"
    )
    assert "TrustedHTML" in refused
    assert page.faults(("TrustedHTML",)) == []


def test_shares_speeds_and_the_reason_of_an_elastic_job(
    chrome: Chrome, made: Callable[[View], Made], shots: Path
) -> None:
    now = time.time()
    facts = Facts(resizes=3, last_resize=now - 60, last_cost=31.4, shares=((now - 900, 1), (now - 60, 2)))
    train = made_up(
        "job-train",
        worker=2,
        least=1,
        most=4,
        present=4,
        gpus=8,
        on=["n0", "n1"],
        facts=facts,
        submitted=now - 1000,
        started_at=now - 900,
        report=Report(at=now, step=50, total=200, loss=1.25, speed=2.0),
        samples={Config((("worker", 1),), (1,)): 1.1, Config((("worker", 2),), (1, 1)): 2.0},
        speed=((1, 1.0), (2, 1.9), (4, 3.1)),
    )
    view = viewed(snapshot(nodes=2, jobs=[train], now=now))
    why = "2 more GPUs would speed it up by 9 %; a job of another namespace gains +31 %"
    view = replace(view, plan=replace(view.plan, whys={train.key: why}))
    page = Page(chrome, made(view).address)
    page.open("tenant", "namespace=team&job=team/job-train")
    page.until(lambda: why in page.says("#job"), "why it has its share")
    said = page.says("#job")
    for words in (
        "2 now, 1 to 4",
        "25 %",
        "3, the last ",
        "; one costs about 31.4 s",
        "loss 1.25, 2 iterations/s",
    ):
        assert words in said, said
    labels = page.until(lambda: [e.get_attribute("aria-label") for e in page.all("#job svg")], "two charts")
    assert labels[0] is not None
    assert labels[0].startswith("Share over time: 1 replica 1")  # 14m or 15m ago
    assert ", 2 replicas " in labels[0]
    assert labels[1] == "Speed in iterations/s, measured: 1 replica: 1.1, 2 replicas: 2"
    assert len(page.all("#job circle.measured")) == 2
    page.find("#job summary").click()
    page.until(lambda: "1 1.1" in page.says("#job details table"), "its numbers")
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.picture(shots / f"elastic-{scheme}.png")
    page.prefer("light")
    light = page.script("return getComputedStyle(document.body).backgroundColor")
    page.prefer("dark")
    assert page.script("return getComputedStyle(document.body).backgroundColor") != light
    assert page.faults() == []


def as_it_stands(circle: Circle) -> View:
    """What the live driver would hang out, and now."""
    now = circle.ledger.snapshot(circle.cluster.now)
    view = circle.ledger.view(now, circle.plan, leading=True, synced=True)
    return replace(view, snapshot=replace(view.snapshot, now=time.time()))


def test_gpus_in_place_and_what_changed_hands(
    chrome: Chrome, made: Callable[[View], Made], shots: Path
) -> None:
    circle = Circle()
    circle.cluster.now = time.time() - 60.0
    circle.restart()
    circle.train("a", "1-4")
    circle.seconds(8)
    service = made(as_it_stands(circle))
    page = Page(chrome, service.address)
    page.open("admin")
    a, b = "team/job-a", "team/job-b"
    page.until(lambda: page.shown_for(a) == 4, "a uses all")
    assert page.rows("jobs")[a][2] == "4 of 1–4 GPUs"
    assert not page.find("#hand-overs").is_displayed()

    # b comes, and a has not given up anything yet
    circle.slow.add(circle.pod("a").uid)
    circle.train("b", "1-4")
    circle.seconds(4)
    service.board.view = as_it_stands(circle)
    page.until(lambda: drawn(page, a, "ending") == {"n0": 2}, "two of a's are about to be handed over")
    assert drawn(page, a) == {"n0": 2}
    rows = page.rows("jobs")
    assert (rows[a][2:4], rows[b][2:4]) == (["4 of 1–4 (−2) GPUs", "4"], ["0 of 1–4 (+2) GPUs", "0"])
    page.picture(shots / "in-place-changing.png")

    # it has: the cells are b's, each names its device, and the hand-over is listed
    circle.slow.clear()
    circle.seconds(8)
    service.board.view = as_it_stands(circle)
    page.until(lambda: (drawn(page, a), drawn(page, b)) == ({"n0": 2}, {"n0": 2}), "two each")
    ActionChains(page.driver).move_to_element(page.cell(b)).perform()
    page.until(lambda: "GPU-n0-" in page.says("#tip"), "the cell names its device")
    over = page.until(lambda: page.says("#hand-overs tbody").splitlines(), "hand-overs")
    assert any("0 → 2 n0" in line for line in over), over
    assert any("4 → 2 n0" in line for line in over), over
    page.open("admin", f"job={b}")
    page.until(lambda: "GPUs in place" in page.says("#job dl"), "b is open")
    assert "2 now, 1 to 4" in page.says("#job dl")
    assert "Last hand-over" in page.says("#job dl")
    assert page.says("#job").count("GPU-n0-") == 2
    assert "hand-over took " in page.rows("jobs")[b][6]
    assert "not created yet" not in page.says("#job"), "its one pod is there"
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.picture(shots / f"in-place-{scheme}.png")
    assert page.faults() == []


def test_two_jobs_on_one_gpu_are_one_cell_of_two_halves(
    chrome: Chrome, made: Callable[[View], Made], shots: Path
) -> None:
    circle = Circle(gpus=2)
    for name in ("a", "b"):
        circle.train(name, "1")
    circle.seconds(8)
    view = as_it_stands(circle)
    assert view.in_place is not None
    every = dict(view.in_place.devices)
    first, second = sorted(every)
    both = every[first].users | every[second].users
    every[first] = replace(every[first], users=both)
    del every[second]
    view = replace(view, in_place=replace(view.in_place, devices=every, held={"n0": 1}))
    page = Page(chrome, made(view).address)
    page.open("admin")
    page.until(lambda: page.shown_for("team/job-a") == 1, "it is drawn")
    assert len(page.all(".node .half")) == 1
    ActionChains(page.driver).move_to_element(page.cell("team/job-a")).perform()
    page.until(lambda: "shared with team/job-b" in page.says("#tip"), "and with whom")
    assert page.rows("jobs")["team/job-b"][2] == "1/1 GPUs"
    page.picture(shots / "pair.png")
    assert page.faults() == []


def test_the_page_asks_gently_and_says_when_its_data_is_old(
    chrome: Chrome, made: Callable[[View], Made]
) -> None:
    service = made(viewed(snapshot(nodes=2, jobs=[made_up("runs", worker=1, gpus=4, on=["n0"])])))
    page = Page(chrome, service.address)
    page.open("admin")
    page.until(lambda: page.shown_for("team/runs") == 4, "it is drawn")
    began = len([p for p in page.asked() if p == "/v1/cluster"])
    page.until(lambda: page.asked().count("/v1/cluster") >= began + 3, "it asks again")
    # what comes is drawn without a reload
    service.board.view = viewed(snapshot(nodes=2, jobs=[made_up("runs", worker=2, gpus=4, on=["n0", "n1"])]))
    page.until(lambda: page.shown_for("team/runs") == 8, "it has grown")
    # nobody answers: the old picture stays, is called old, and the page asks less and less often
    page.script(
        """window.tries = []; const real = window.fetch;
           window.fetch = async () => { window.tries.push(performance.now()); throw new TypeError("gone"); };
           window.back = () => { window.fetch = real; };"""
    )
    page.until(lambda: "Muster can't be reached" in page.says("#alarm"), "it says so")
    page.until(lambda: page.script("return window.tries.length") >= 3, "it tries again")
    tries = page.script("return window.tries")
    gaps = [after - before for before, after in pairwise(tries)]
    # 4 s, 8 s, 16 s, each less a quarter at most; a slow browser may take longer.
    assert all(gap >= 2900 * 2**number for number, gap in enumerate(gaps)), gaps
    page.until(lambda: "old" in page.says("#alarm"), "its data is called old")
    assert page.shown_for("team/runs") == 8
    page.script("window.back(); window.dispatchEvent(new Event('online'))")
    page.until(lambda: not page.says("#alarm"), "it is well again")
    assert page.faults() == []


def test_a_page_that_nobody_looks_at_asks_nothing(chrome: Chrome, made: Callable[[View], Made]) -> None:
    service = made(viewed(snapshot(nodes=1)))
    page = Page(chrome, service.address)
    page.open("admin")
    page.until(lambda: len(page.cells()) == 1, "it is drawn")
    here = chrome.current_window_handle
    chrome.switch_to.new_window("tab")  # the first is hidden now, or as soon as the browser has told it so

    def silent() -> bool:
        before = len(service.asked)
        time.sleep(5)  # two and a half of its rounds
        return len(service.asked) == before

    wait_until(silent, what="it asks nothing for 5 s")
    before = len(service.asked)
    chrome.close()
    chrome.switch_to.window(here)
    wait_until(lambda: len(service.asked) > before, what="it asks when it is seen again")


def test_when_a_job_starts_is_shown_with_how_sure_that_is(
    chrome: Chrome, made: Callable[[View], Made], shots: Path
) -> None:
    now = time.time()
    jobs = [
        made_up("runs", worker=1, gpus=8, on=["n0"], started_at=now - 100, remaining_work=7000.0),
        made_up("next", worker=1, gpus=8),
        made_up("never", worker=1, gpus=9),
    ]
    page = Page(chrome, made(viewed(snapshot(nodes=1, jobs=jobs, now=now))).address)
    page.open("admin")
    queue = page.until(lambda: found if len(found := page.rows("queue")) == 2 else None, "two jobs wait")
    sure = "by the run times that jobs declare or report; it may start sooner"
    when, _, how = queue["team/next"][4].partition(", ")
    assert when.startswith("in ")
    assert how == sure
    page.picture(shots / "how-sure.png")
    assert queue["team/never"][0] == "–"
    assert queue["team/never"][4] == "never, as the cluster is now"
    page.open("admin", "job=team/next")
    page.until(lambda: f"m, {sure}" in page.says("#job"), "so says the job")
    page.open("admin", "job=team/never")
    page.until(lambda: "never, as the cluster is now" in page.says("#job"), "so does the one that never fits")
    assert "Place in the queue" not in page.says("#job")
    assert page.faults() == []


def test_without_gpus_or_jobs_it_says_so(chrome: Chrome, made: Callable[[View], Made]) -> None:
    page = Page(chrome, made(viewed(snapshot([node("cpu", gpus=0)]))).address)
    page.open("admin")
    page.until(lambda: "No node offers GPUs." in page.says(), "it says that there are none")
    assert "Nobody waits." in page.says("#queue")
    assert "No job runs." in page.says("#jobs")
    assert page.faults() == []


def test_foreign_pods_and_closed_nodes_look_different_without_colour(
    chrome: Chrome, made: Callable[[View], Made]
) -> None:
    """States are told apart by patterns and borders, not by colour alone."""
    nodes = [node("n0"), node("n1", cordoned=True)]
    jobs = [
        made_up("runs", worker=1, gpus=1, on=["n0"]),
        made_up("comes", worker=1, gpus=1, held=[("worker", "n0", 0)]),
        made_up("leaves", worker=1, gpus=1, ending=["n0"], on=()),
    ]
    page = Page(chrome, made(viewed(snapshot(nodes, jobs=jobs, foreign={"n0": asks(1)}))).address)
    page.open("admin")
    page.until(lambda: len(page.cells()) == 2, "it is drawn")
    looks = {}
    for state in ("bound", "held", "ending", "foreign", "closed", "free"):
        looks[state] = tuple(
            page.script(
                """const c = getComputedStyle(document.querySelector('.node .cell.' + arguments[0]));
                   return [c.borderTopStyle, c.backgroundImage.replace(/rgba?\\([^)]*\\)/g, 'x')]""",
                state,
            )
        )
    assert looks["held"][0] == "dashed"
    shapes = [looks[state][1] for state in ("ending", "foreign", "closed", "free")]
    assert len(set(shapes)) == 4
