"""`muster top`: what it shows at each size, and what it prints in a pipe. On a terminal: e2e/test_terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType

from muster import cli
from muster.cli import main
from muster.cluster import api
from muster.screen import HEAD, SORTS, Capacity, Look, Seen, clipped, listed, listing, picture
from muster.top import SEQUENCES
from muster.types import BEHIND, NEVER
from tests.api_fake import Server, serving
from tests.gangs import NOON, a_busy_cluster, gang, stamp

SEEN = Seen(a_busy_cluster(), Capacity(gpus=32, nodes=4, cordoned=1), NOON, everywhere=True)


def drawn(what: RenderableType, width: int = 500) -> list[str]:
    """The lines as they stand on a terminal without colours."""
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as text:
        console.print(what)
    return [line.rstrip() for line in text.get().splitlines()]


def names(look: Look, seen: Seen = SEEN) -> list[str]:
    return [g["metadata"]["name"].removeprefix("job-") for g in listed(seen, look)]


# ---- the picture ----


def test_in_a_pipe_every_job_is_there_uncut() -> None:
    assert drawn(listing(SEEN, Look("team"), NOON)) == [
        "GPUs  22 granted in team, 6 to other namespaces, 4 not granted by Muster; 32 on 4 nodes (1 cordoned)",
        "Jobs  2 running, 1 resizing, 1 waiting, 1 finished; the longest waits 5m",
        "",
        "NAME        STATE     SHARE    GPUS  POS   START   SPEED  PROGRESS       LEFT     END   AGE  RESIZES  WHY",
        "job-bert    Resizing  4/2/8 ▼    16               58.1/s  ━━━━━━━━   7%   25h   2 Jan  120m        1"
        "  4 more GPUs would speed it up by 18 %, but 1 job that gains less and is shorter comes first",
        "job-resnet  Running   4/1/8 ▲     4                412/s  ━━━━━━━━  43%   80m  13:20Z   60m        3"
        "  2 more GPUs would speed it up by 9 %; job-bert is 31 % faster with its last 4",
        "job-rigid   Running   2/2/2       2                                                      3m         "
        "  its size is fixed at 2 replicas; can't resize: a Job without successPolicy would wait for indexes"
        " that never ran",
        "job-next    Waiting   0/1/4     (8)    1  in 80m                                         5m         "
        "  needs 8 GPUs (1 replica of 8); 0 of 1 replica fits now; 20 GPUs that it could use are held by"
        " team/job-bert and team/job-resnet; expected start in 80m, by the run times that jobs declare or"
        " report; it may start sooner",
        "job-over    Finished  0/1/1     (1)                       ━━━━━━━━ 100%                150m         "
        "  all replicas have ended",
    ]  # fmt: skip


def test_on_80_columns_what_tells_least_goes_and_no_line_is_longer() -> None:
    assert drawn(picture(SEEN, Look("", sort="gpus"), NOON, 80, 20), 80) == [
        "muster top  all namespaces  sorted by gpus",
        "GPUs  ██████████████████░░  28 granted, 4 not granted by Muster; 32 on 4 nodes …",
        "Jobs  3 running, 1 resizing, 2 waiting, 1 finished; the longest waits 5m",
        "",
        "NAME        STATE     SHARE    GPUS  POS  WHY",
        "job-bert    Resizing  4/2/8 ▼    16       4 more GPUs would speed it up by 18 %…",
        "job-theirs  Running   6/1/6       6       at its maximum",
        "job-resnet  Running   4/1/8 ▲     4       2 more GPUs would speed it up by 9 %;…",
        "job-rigid   Running   2/2/2       2       its size is fixed at 2 replicas; can'…",
        "job-next    Waiting   0/1/4     (8)    1  needs 8 GPUs (1 replica of 8); 0 of 1…",
        "job-late    Waiting   0/4/4    (32)    2  needs 32 GPUs (4 replicas of 8); 0 of…",
        "job-over    Finished  0/1/1     (1)       all replicas have ended",
    ]


def test_a_waiting_job_says_when_it_starts_and_how_sure_or_why_that_is_not_known_or_never() -> None:
    sure = "by the run times that jobs declare or report; it may start sooner"
    jobs = [
        gang("a-past", "Waiting", message="needs 2 GPUs", position=1, expectedStart=stamp(9), expected=sure),
        gang("b-unknown", "Waiting", message="needs 2 GPUs", position=2, expected="not known: too much"),
        gang("c-never", "Waiting", message="needs 9 GPUs: no node has them", expected=NEVER),
        gang("d-behind", "Waiting", message=f"needs 2 GPUs; {BEHIND}", expected=BEHIND),
    ]
    head, *lines = drawn(listing(Seen(jobs, None, NOON), Look("team"), NOON))[3:]
    assert "  POS  START  " in head
    at = head.index("POS")
    assert [line[at : at + 10].split() for line in lines] == [["1", "now"], ["2"], ["never"], []]
    assert [line[head.index("WHY") :] for line in lines] == [
        f"needs 2 GPUs; expected start now, {sure}",
        "needs 2 GPUs; expected start not known: too much",
        f"needs 9 GPUs: no node has them; expected start {NEVER}",
        f"needs 2 GPUs; {BEHIND}",
    ]


def test_without_a_job_that_waits_there_is_no_column_of_turns() -> None:
    seen = Seen([gang("job", gpus=1)], None, NOON)
    assert not {"POS", "START"} & set(drawn(listing(seen, Look("team"), NOON))[3].split())


@pytest.mark.parametrize("width", [20, 40, 61, 80, 120, 200])
@pytest.mark.parametrize("height", [3, 8, 24, 60])
def test_it_fits_every_terminal(width: int, height: int) -> None:
    crowd = Seen([gang(f"a-rather-long-name-{n}", gpus=1) for n in range(40)], None, NOON)
    for seen in (SEEN, crowd, Seen()):
        lines = drawn(picture(seen, Look("team", first=7), NOON, width, height), width)
        assert len(lines) <= max(height, HEAD + 2)
        assert max(map(len, lines)) <= width


def test_a_long_list_is_scrolled_and_says_what_is_not_shown() -> None:
    crowd = Seen([gang(f"job-{n:02d}", gpus=1, ago=100 - n) for n in range(20)], None, NOON, True)
    at = [(0, "job-00", "15 below"), (9, "job-09", "9 above, 6 below"), (99, "job-15", "15 above")]
    for first, shown, foot in at:
        lines = drawn(picture(crowd, Look("team", first=first), NOON, 100, HEAD + 6), 100)
        assert lines[HEAD].startswith(shown)
        assert lines[-1] == foot
    assert [clipped(first, 20, HEAD + 6) for first in (-4, 3, 99)] == [0, 3, 15]


def test_what_may_not_be_read_and_what_fails_is_said() -> None:
    mine = Seen([g for g in SEEN.gangs if g["metadata"]["namespace"] == "team"], None, NOON)
    assert drawn(listing(mine, Look("team"), NOON))[0] == (
        "GPUs  22 granted in team (you may not read other namespaces); you may not read nodes"
    )
    lost = Seen(SEEN.gangs, SEEN.capacity, NOON - 30, True, "no answer")
    assert drawn(picture(lost, Look("team"), NOON, 120, 20), 120)[0] == (
        "muster top  namespace team  sorted by state  this was read 30s ago: no answer"
    )
    nothing = drawn(listing(Seen(at=NOON), Look("empty"), NOON))
    assert nothing[-1].startswith("no job of Muster in namespace empty (-A shows all)")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("state", ["bert", "resnet", "rigid", "theirs", "next", "late", "over"]),
        ("name", ["bert", "next", "resnet", "rigid", "late", "theirs", "over"]),
        ("share", ["theirs", "bert", "resnet", "rigid", "next", "late", "over"]),
        ("gpus", ["bert", "theirs", "resnet", "rigid", "next", "late", "over"]),
        ("speed", ["resnet", "bert", "next", "rigid", "theirs", "late", "over"]),
        ("progress", ["resnet", "bert", "next", "rigid", "theirs", "late", "over"]),
        ("end", ["resnet", "bert", "next", "rigid", "theirs", "late", "over"]),
        ("age", ["bert", "resnet", "next", "rigid", "theirs", "late", "over"]),
    ],
)
def test_every_order_ends_in_the_queues_and_has_what_is_over_last(sort: str, expected: list[str]) -> None:
    assert names(Look("", sort=sort)) == expected


def test_an_arrow_tells_a_share_that_changed_within_the_minute() -> None:
    seen = Seen([gang("job", share="2/1/4", shares=[[NOON - 90, 1], [NOON - 61, 2]])], None, NOON)
    assert "▲" not in "".join(drawn(listing(seen, Look("team"), NOON)))
    assert "▲" in "".join(drawn(listing(seen, Look("team"), NOON - 2)))


def test_a_job_in_place_says_which_gpus_it_has_and_what_the_hand_over_took() -> None:
    told = "in place: 2 of 8 GPUs of node-3 since 12:03Z; hand-over took 1.4 s, GPUs idle 0.6 s"
    why = "1 more GPU would speed it up by 9 %"
    here = gang("job-here", share="2/1/8", gpus=2, message=told, shareReason=why)
    lines = drawn(listing(Seen([here, gang("job-else", gpus=1)], None, NOON), Look("team"), NOON))
    assert lines[1] == "Jobs  2 running, 1 of them in place"
    assert [line for line in lines if line.endswith(f"{told}; {why}")]


# ---- the command, against an API server that answers by hand ----


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(api, "REQUEST_TIMEOUT", 60.0)  # a server that is slow does not hang
    with serving() as made:
        yield made


@pytest.fixture
def kubeconfig(server: Server, tmp_path: Path) -> str:
    return server.kubeconfig(tmp_path)


def test_once_prints_the_contexts_namespace_and_asks_each_thing_once(server: Server, kubeconfig: str) -> None:
    done = CliRunner().invoke(main, ["top", "--once", "--kubeconfig", kubeconfig])
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "GPUs  22 granted in team, 6 to other namespaces, 4 not granted by Muster; 32 on 4 nodes"
    )
    assert [line.split()[0] for line in lines[3:]] == [
        "NAME", "job-bert", "job-resnet", "job-rigid", "job-next", "job-over",
    ]  # fmt: skip
    assert server.asked == ["/apis/muster.dev/v1alpha1/gangs", "/api/v1/nodes"]


def test_a_tenant_sees_his_own_namespace_and_is_refused_all(server: Server, kubeconfig: str) -> None:
    server.answers["/apis/muster.dev/v1alpha1/gangs"] = server.answers["/api/v1/nodes"] = 403
    done = CliRunner().invoke(main, ["top", "--sort-by=name", "--kubeconfig", kubeconfig])
    assert done.exit_code == 0
    assert "(you may not read other namespaces); you may not read nodes" in done.stdout
    assert "job-resnet" in done.stdout
    refused = CliRunner().invoke(main, ["top", "-A", "--kubeconfig", kubeconfig])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "403 no" in refused.stderr


def test_its_help_teaches_and_a_wrong_order_is_bad_usage() -> None:
    assert "Keys: q quit" in CliRunner().invoke(main, ["top", "--help"]).stdout
    done = CliRunner().invoke(main, ["top", "--sort-by", "size"])
    assert done.exit_code == 2
    assert all(f"'{name}'" in done.stderr for name in SORTS)


def test_every_key_of_the_help_is_known() -> None:
    assert set(SEQUENCES.values()) == {"up", "down", "previous", "next", "home", "end", "q", "s", "a"}


def test_help_offers_the_columns_there_are() -> None:
    assert list(cli.SORTS) == list(SORTS)
