"""What people read of elastic jobs on a real cluster: kubectl's columns, `muster explain`, `muster top`, /metrics.

The sentences themselves are pinned by tests/core/test_whys, screens and texts by tests/test_top and
tests/server/test_explain; here is that they are true of jobs that run, and fit for those who read them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.cluster import Cluster, Pod
from e2e.elastic import has, only, shared_by, train
from e2e.lab import Lab
from e2e.reports import tell, token
from e2e.scenario import delete_job, gang, job, looking, on_node, seen_at_once, wait_until
from e2e.test_say_why import _kubectl, account, as_account

pytestmark = pytest.mark.lab

HALF = "1=1,2=1.5,4=2,8=3"
"""From 4 to 8 replicas half as fast again."""


def table(text: str) -> list[dict[str, str]]:
    """kubectl's rows by column; a column begins where its name does, and may be empty."""
    head, *lines = text.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", head)]
    names = head.split()
    ends = [*starts[1:], None]
    return [
        {name: line[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)}
        for line in lines
    ]


def metrics(lab: Lab) -> dict[str, float]:
    """/metrics as name and label values (by the label's name), histogram buckets left out."""
    answer = httpx.get(f"{lab.service_url()}/metrics", timeout=60, trust_env=False)
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }


def more(lab: Lab, before: dict[str, float]) -> dict[str, float]:
    """What was counted since `before`."""
    return {
        name: value - before.get(name, 0.0)
        for name, value in metrics(lab).items()
        if value > before.get(name, 0.0)
    }


class Training:
    """A process of a pod that reports: `speed` steps a second, from where it was."""

    def __init__(self, lab: Lab, cluster: Cluster, namespace: str, of: Pod, total: float) -> None:
        self._lab, self._bearer, self._total = lab, token(cluster, of, namespace), total
        self._step, self._at = 0.0, time.monotonic()

    def runs(self, speed: float) -> None:
        """Report, no more often than Muster takes it."""
        now = time.monotonic()
        if now - self._at < 1.1:
            return
        self._step, self._at = self._step + speed * (now - self._at), now
        report = {"step": self._step, "total": self._total, "at": time.time()}  # however long the way is
        answer = tell(self._lab, self._bearer, report)
        assert answer.status_code in (200, 429), answer.text  # 429: the one before was held up on its way


def test_a_tenant_reads_his_share_and_why_and_what_it_gave_him(
    lab: Lab, cluster: Cluster, namespace: str, new_namespace: Callable[[], str], tmp_path: Path
) -> None:
    other = new_namespace()
    only(lab, cluster, lab.nodes[0])
    before = metrics(lab)
    with shared_by(lab, "max-min"):
        cluster.submit(train("theirs", most=8, work=3600), namespace=other)
        has(cluster, other, "theirs", 8)
        cluster.submit(train("mine", most=8, speeds=HALF, work=3600), namespace=namespace)
        pods = has(cluster, namespace, "mine", 4)
        has(cluster, other, "theirs", 4)

        # a write a minute tells what is new without a change of size: speed, progress, why
        training = Training(lab, cluster, namespace, pods[0], total=100_000)
        told(cluster, namespace, training, speed=10.0, replicas=4)

        # he sees his own namespace only, and in no sentence a name of the other's job
        tenant = as_account(lab, account(cluster, namespace, "tenant", "view", audience=""), tmp_path)

        def read() -> tuple[str, str, dict[str, str], str] | None:
            """Why, the table, the wide row and `muster explain`, all of one time: what is measured changes why."""
            why = str(gang(cluster, namespace, "job-mine")["shareReason"])
            listed = _kubectl(lab, tenant, "get", "gangs", "-n", namespace)
            if not listed:  # view includes gangs, when the API server has seen the binding
                return None
            text = lab.muster("explain", "job-mine", "-n", namespace, kubeconfig=tenant).stdout
            wide = table(lab.kubectl("get", "gangs", "-n", namespace, "-o", "wide"))[0]
            return (why, listed, wide, text) if wide["WHY"] == why and f"Why:       {why}\n" in text else None

        with looking(
            lambda: training.runs(10.0), 0.5
        ):  # on a slow machine a minute goes by, which would be silence
            why, listed, wide, text = wait_until(
                read,
                what="kubectl and explain say the same of why",
                also=lambda: str(gang(cluster, namespace, "job-mine")),
            )
        assert re.fullmatch(
            r"1 more GPU would speed it up by \d+ %; a job of another namespace is 33 % faster with it", why
        ), why
        assert listed.splitlines()[0].split() == [
            "NAME", "STATE", "POS", "FREE", "START", "REPLICAS", "SHARE", "GPUS", "DONE", "END", "AGE", "MESSAGE",
        ]  # fmt: skip
        assert max(map(len, listed.splitlines())) <= 140, "readable on 140 columns"
        (row,) = table(listed)
        assert (row["NAME"], row["STATE"], row["SHARE"], row["GPUS"]) == ("job-mine", "Running", "4/1/8", "4")
        assert 9 <= float(wide["SPEED"].removesuffix("/s")) <= 11, wide
        assert re.fullmatch(r"\d+%", row["DONE"])
        assert row["MESSAGE"] == "4 replicas running; up to 8 as capacity is free"
        assert re.fullmatch(r"\d\d:\d\dZ|\d+ [A-Z][a-z]{2}", row["END"])
        assert (wide["REPLICAS"], wide["REASON"], wide["WHY"]) == ("4/4", "Ok", why)
        assert "Share:     4 replicas; it may have 1 to 8\n" in text
        assert f"Why:       {why}\n" in text
        assert "Remaining: " in text
        seen = lab.muster("top", "-n", namespace, kubeconfig=tenant).stdout
        assert "4 granted in " in seen.splitlines()[0]
        assert "(you may not read other namespaces); you may not read nodes" in seen.splitlines()[0]
        assert [line.split()[:4] for line in seen.splitlines()[4:]] == [["job-mine", "Running", "4/1/8", "4"]]
        assert "theirs" not in listed + text + seen + str(wide)

        def eight_in_all() -> list[str]:
            lines = lab.muster("top", "-A", "--sort-by=name").stdout.splitlines()
            return lines if lines[0].startswith("GPUs  8 granted, ") else []

        # Gangs of scenarios before go with their namespaces, when the controller manager comes to it.
        everything = wait_until(eight_in_all, what="8 GPUs are granted")
        assert {f"{line.split()[0]}/{line.split()[1]}" for line in everything[4:]} >= {
            f"{namespace}/job-mine",
            f"{other}/job-theirs",
        }

        # it grows, and is faster: in one step, for all that is free is there when Muster looks
        with seen_at_once(lab):
            delete_job(cluster, other, "theirs")
            wait_until(lambda: not cluster.pods(other), what="theirs is gone")
        has(cluster, namespace, "mine", 8)

        def grown() -> str:
            said = lab.muster("explain", "job-mine", "-n", namespace, kubeconfig=tenant).stdout
            return said if "Why:       at its maximum\n" in said and "Resizes:   1; " in said else ""

        text = wait_until(
            grown, what="it is at its maximum", also=lambda: str(gang(cluster, namespace, "job-mine"))
        )
        (row,) = table(lab.kubectl("get", "gangs", "-n", namespace))
        assert row["SHARE"] == "8/1/8"
        heads, four = [line.split() for line in text.split("\n\n")[1].splitlines()]
        assert heads == ["REPLICAS", "SPEED", "GAIN", "A", "REPLICA"]
        assert (four[0], four[2:]) == ("4", ["100", "%"])

        # counted, for the dashboard: what was expected of 8 replicas is compared with what was measured
        def compared() -> bool:
            training.runs(15.0)
            return more(lab, before).keys() >= {
                "muster_speed_estimate_ratio_count",
                "muster_resize_gain_ratio_count grow",
                "muster_resize_cost_seconds_count",
            }

        wait_until(compared, what="8 replicas are measured", also=lambda: str(more(lab, before)))
    counted = more(lab, before)
    assert counted["muster_resizes_total share start"] == 2
    assert (
        counted["muster_resizes_total share shrink"] >= 1
    )  # pods come one by one, so a size may be reached in steps
    assert counted["muster_resizes_total share grow"] >= 1
    assert counted["muster_resize_gain_ratio_count grow"] == 1
    assert 1.3 <= counted["muster_resize_gain_ratio_sum grow"] <= 1.7
    assert counted["muster_resize_cost_seconds_count"] >= 1
    assert counted["muster_reports_total accepted"] >= 4


def told(cluster: Cluster, namespace: str, training: Training, speed: float, replicas: int) -> None:
    """The training reports until the Gang tells its median speed at so many replicas."""

    def known() -> bool:
        training.runs(speed)
        return str(replicas) in (gang(cluster, namespace, "job-mine").get("speeds") or {})

    wait_until(
        known,
        within=120,
        what=f"the speed at {replicas} replicas is known",
        also=lambda: str(gang(cluster, namespace, "job-mine")),
    )


def test_growing_and_shrinking_are_events_that_kubectl_describe_shows(
    lab: Lab, cluster: Cluster, namespace: str
) -> None:
    def described(what: str) -> list[str]:
        """Muster's Events of a change of size, as `kubectl describe` prints them."""
        lines = lab.kubectl("describe", what, "-n", namespace).partition("\nEvents:")[2].splitlines()
        return [" ".join(line.split()[4:]) for line in lines if re.search(r" (Grown|Shrunk) ", line)]

    def once(what: str, sentences: Sequence[str]) -> bool:
        """A start that its Job makes slowly may be a growth, too."""
        found = described(what)
        return all(sum(one.startswith(sentence) for one in found) == 1 for sentence in sentences)

    def both(*sentences: str) -> None:
        """The Gang and the Job say each of these once."""
        for what in ("gang/job-mine", "job/mine"):
            wait_until(
                lambda what=what: once(what, sentences),  # type: ignore[misc]
                what=f"describe {what} shows {sentences}",
                also=lambda what=what: lab.kubectl("describe", what, "-n", namespace),  # type: ignore[misc]
            )

    only(lab, cluster, lab.nodes[0])
    with shared_by(lab, "max-min"):
        cluster.submit(train("mine", most=8, speeds=HALF), namespace=namespace)
        has(cluster, namespace, "mine", 8)
        with seen_at_once(lab):
            cluster.submit(job("other", 4, gpus=1), namespace=namespace)
            wait_until(lambda: len(cluster.pods(namespace, "other")) == 4, what="its pods are there")
        has(cluster, namespace, "mine", 4)
        shrunk = "Shrunk from 8 to 4 workers: its share of the GPUs fell; 1 more GPU would speed it up by "
        both(shrunk)
        with seen_at_once(lab):
            delete_job(cluster, namespace, "other")
            wait_until(lambda: not cluster.pods(namespace, "other"), what="it is gone")
        has(cluster, namespace, "mine", 8)
        both(shrunk, "Grown from 4 to 8 workers: its share of the GPUs grew; at its maximum")
        # what waits, and has no GPU, says so there, too
        cluster.submit(job("huge", 9, gpus=1, affinity=on_node(lab.nodes[0])), namespace=namespace)
        wait_until(
            lambda: "NeverFits" in lab.kubectl("describe", "gangs", "-n", namespace),  # its Gang may come yet
            what="describe shows why it waits",
            also=lambda: lab.kubectl("describe", "gangs", "-n", namespace),
        )
