# Over 300 lines: every key of muster.yaml, and what a bad one is told.
"""muster.yaml: what is read, and what a bad one is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster import live_recipes, points, profiles
from muster.errors import ConfigurationError
from muster.points import Fifo
from muster.settings import load_settings, profile_of
from muster_plugins.gang import Gang
from muster_plugins.gang_pack import GangPack
from muster_plugins.pack import Pack

WHOLE = """
apiVersion: muster.dev/v1alpha1
kind: MusterConfiguration
schedulerName: gpus
mode: observe
profile: gang-pack
order: strict
leader: {namespace: infra, lease: gpus-scheduler}
ports: {service: 9080, extender: 9081}
gang: {timeout: 90s, ttlAfterFinished: 1h30m, ownerPause: 30s}
patience: 600
topologyLevels: [rack, topology.kubernetes.io/zone]
deviceResources: [google.com/tpu, amd.com/*, "*/gpu"]
pluginArgs: {gang-pack: {in_use: 25.0}}
"""


@dataclass
class Installed:
    """An entry point."""

    plugin: Any

    def load(self) -> Any:
        return self.plugin


REAL = points.installed


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"pack": Installed(Pack), "gang": Installed(Gang), "gang-pack": Installed(GangPack)}
    monkeypatch.setattr(points, "installed", lambda: found)


def test_an_empty_configuration_is_the_default_profile() -> None:
    settings = load_settings("")
    profile = profile_of(settings)
    assert (settings.scheduler_name, settings.mode, settings.ports.service) == ("muster", "active", 8080)
    assert (settings.leader.namespace, settings.leader.lease) == ("muster-system", "muster-scheduler")
    assert (profile.name, profile.sort, profile.scores) == ("fifo", Fifo(), ((Pack(), 1.0),))
    assert (
        profile.order,
        profile.placement,
        profile.timeout,
        profile.patience,
        profile.ttl_after_finished,
    ) == (
        "backfill",
        "pinned",
        120.0,
        300.0,
        3600.0,
    )


def test_every_setting_reaches_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "muster.yaml"
    file.write_text(WHOLE)
    settings = load_settings(file)
    profile = profile_of(settings)
    assert settings.leader.lease == "gpus-scheduler"
    assert profile.scores == ((GangPack(in_use=25.0), 1.0),)
    assert (profile.name, profile.placement, profile.order) == ("gang-pack", "scored", "strict")
    assert (profile.timeout, profile.ttl_after_finished, profile.patience, profile.owner_pause) == (
        90.0,
        5400.0,
        600.0,
        30.0,
    )
    assert profile.topology_levels == ("rack", "topology.kubernetes.io/zone")
    assert profile.devices == (("google.com/tpu",), ("amd.com/",), ("/gpu",))


def test_the_gang_profile_is_one_plugin_at_three_points() -> None:
    profile = profile_of(load_settings("profile: gang"))
    assert (profile.sort, profile.filters, profile.scores) == (Gang(), (Gang(),), ((Gang(), 1.0),))
    assert profile.placement == "scored"


def test_a_team_adds_a_profile_of_its_own() -> None:
    text = """
profile: ours
profiles:
- name: ours
  sort: gang
  scores: [{name: pack, weight: 3}, {name: gang-pack}]
  placement: scored
"""
    profile = profile_of(load_settings(text))
    assert (profile.name, profile.sort, profile.placement) == ("ours", Gang(), "scored")
    assert profile.scores == ((Pack(), 3.0), (GangPack(), 1.0))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order: fast", "order: must be 'backfill' or 'strict'; found 'fast'"),
        (
            "ordr: strict",
            "ordr: not a setting; allowed here: apiVersion, autoscaler, binder, clusterScheduler, ",
        ),
        (
            "ports: {srvice: 1}",
            "ports.srvice: not a setting; allowed here: address, extender, service; found 1",
        ),
        ("ports: {service: 70000}", "ports.service: must be at most 65535; found 70000"),
        ("ports: {service: '1'}", "ports.service: must be a whole number; found '1'"),
        ("ports: {service: 8081}", "ports: service and extender must differ; both are 8081"),
        ("gang: {timeout: soon}", "gang.timeout: must be a time such as 90s, 2m or 1h30m"),
        ("gang: {timeout: 0}", "gang.timeout: must be more than 0; found 0"),
        ("topologyLevels: rack", "topologyLevels: must be a list; found 'rack'"),
        ("topologyLevels: [a b]", "topologyLevels[0]: must be a label key such as"),
        ("deviceResources: []", "deviceResources: must name one at least; found []"),
        ("deviceResources: [cpu]", "deviceResources[0]: must be an extended resource such as google.com/tpu"),
        ("deviceResources: ['*']", "deviceResources[0]: must be an extended resource such as google.com/tpu"),
        (
            "{devices: {enabled: true}, reporting: {enabled: true}, deviceResources: [google.com/tpu]}",
            "devices.enabled: needs nvidia.com/gpu among deviceResources",
        ),
        ("schedulerName: My Scheduler", "schedulerName: must be a Kubernetes name"),
        ("apiVersion: v1", "apiVersion: must be 'muster.dev/v1alpha1'; found 'v1'"),
        ("- a", "configuration: must be a mapping; found ['a']"),
        ("a: [", "configuration: is not YAML: "),
        ("profiles: [{name: a}, {name: a}]", "profiles: two have the same name"),
        ("devices: {lease: 20s}", "devices.lease: must be at least 30; found '20s'"),
        ("devices: {grace: 0}", "devices.grace: must be at least 1; found 0"),
        ("devices: {namespace: My Devices}", "devices.namespace: must be a Kubernetes name"),
        ("{devices: {enabled: true}, mode: observe}", "devices.enabled: needs mode active"),
        (
            "{devices: {enabled: true}, reporting: {enabled: false}}",
            "devices.enabled: needs reporting.enabled",
        ),
        *(
            (
                f"namespaceSelector: {{matchExpressions: [{{key: team, operator: {operator}{values}}}]}}",
                f"namespaceSelector.matchExpressions[0].values: {says}",
            )
            for operator, values, says in (
                ("In", "", "must name one at least with operator In; found []"),
                ("Exists", ", values: [ml]", "must be empty with operator Exists; found ['ml']"),
            )
        ),
        (
            "{devices: {enabled: true, report: hold}, reporting: {enabled: true}}",
            "devices.url: must be given with report hold",
        ),
        (
            "profiles: [{name: a, round: -1}]",
            "profiles[0].round: must be at least 0; found -1",
        ),
        (
            "reporting: {enabled: false, shareLessons: true}",
            "reporting.shareLessons: needs reporting.enabled; found True",
        ),
        (
            "reporting: {enabled: false, url: 'http://a:1'}",
            "reporting.url: needs reporting.enabled; found 'http://a:1'",
        ),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed_and_what_was_found(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_settings(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("profile: best", "fifo, gang, gang-pack, "),
        ("profile: best", "; found 'best'"),
        ("pluginArgs: {pack: {x: 1}}", "pluginArgs.pack.x: not a parameter of pack"),
        ("pluginArgs: {pakc: {}}", "pluginArgs.pakc: not a plugin; installed: "),
        ("profile: a\nprofiles: [{name: a, sort: pack}]", "plugin 'pack' is no QueueSort"),
        ("profile: a\nprofiles: [{name: a, filters: [tetris]}]", "plugin 'tetris' is not installed"),
    ],
)
def test_a_profile_that_cannot_be_built_is_told_why(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        profile_of(load_settings(text))
    assert says in str(error.value)


def test_on_a_cluster_changes_have_to_be_worth_their_cost_and_speeds_are_as_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)

    def plugins(text: str) -> tuple[list[str], str]:
        made = profile_of(load_settings(text))
        return [type(share).__name__ for share in made.shares], type(made.estimate).__name__

    assert plugins("profile: afs-l") == (["AfsL", "ResizeCost"], "Reported")
    assert plugins("profile: afs-l\nresizeCost: false\nestimate: declared") == (["AfsL"], "Declared")
    assert plugins("profile: coach") == (["Coach", "ResizeCost"], "Coach"), "its own estimate stays"
    assert plugins("profile: fifo") == ([], "NoneType"), "nothing is shared, so nothing is estimated"


@pytest.mark.parametrize("profile", ["afs-l", "fifo", "coach"])
def test_an_estimate_is_one_whichever_profile_is_in_force(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = "coach, declared, measured, optimus-pollux, reported, reshape, termination"
    for estimate, meant in (("reportd", "; did you mean 'reported'?"), ("pack", "")):
        says = f"estimate: must be one of {known}; found {estimate!r}{meant}"
        is_refused(f"profile: {profile}\nestimate: {estimate}", says, monkeypatch)


@pytest.mark.parametrize(
    ("profile", "own"),
    [
        ("coach", "coach"),
        ("afs-p-packed", "measured"),
        ("termination", "termination"),
        ("reshape-restart", "reshape"),
    ],
)
def test_an_estimate_is_refused_beside_the_profiles_own_unless_another_profile_takes_it(
    profile: str, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found in ("declared", "reported"):
        says = f"estimate: profile {profile!r} has its own, {own}, and looks at no other: leave it out"
        is_refused(f"profile: {profile}\nestimate: {found}", f"{says}; found {found!r}", monkeypatch)
    for more in (f"estimate: {own}", f"estimate: declared\n{OWN}", ""):
        assert profile_of(load_settings(f"profile: {profile}\n{more}")).name == profile


DEVICES = "devices: {enabled: true, image: registry.example/pause}\nreporting: {enabled: true}"


def test_where_devices_are_given_in_place_policies_may_put_two_jobs_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    made = profile_of(
        load_settings(f"profile: similarity\npluginArgs: {{similarity: {{jp: true}}}}\n{DEVICES}")
    )
    assert "jp=True" in repr(made.shares[0])


def test_where_devices_are_given_in_place_a_job_may_go_to_another_node_for_more_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)

    def rebalance(text: str) -> list[str]:
        return [type(plugin).__name__ for plugin in profile_of(load_settings(text)).rebalance]

    assert rebalance(f"profile: max-min\n{DEVICES}") == ["GrowElsewhere"]
    assert rebalance("profile: max-min") == []
    assert rebalance(f"profile: fifo\n{DEVICES}") == [], "nothing is shared there"
    with pytest.raises(ConfigurationError, match="horizon"):
        profile_of(
            load_settings(f"profile: max-min\npluginArgs: {{grow-elsewhere: {{horizon: -1}}}}\n{DEVICES}")
        )


@pytest.mark.parametrize("name", sorted(profiles.NAMED))
def test_a_named_profile_runs_on_a_cluster_or_names_what_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    why = profiles.NAMED[name].simulation_only
    if instead := profiles.NAMED[name].pairs:
        says = f"^profile: '{name}': .*: set devices.enabled, or take {instead}$"
        with pytest.raises(ConfigurationError, match=says):
            profile_of(load_settings(f"profile: {name}"))
        assert profile_of(load_settings(f"profile: {name}\n{DEVICES}")).name == name
        return
    if profiles.NAMED[name].resize == "hand-over":
        says = f"^profile: '{name}' has resize hand-over: .*: set devices.enabled, or take {name}-restart$"
        with pytest.raises(ConfigurationError, match=says):
            profile_of(load_settings(f"profile: {name}"))
        assert profile_of(load_settings(f"profile: {name}\n{DEVICES}")).resize == "hand-over"
        return
    if live_recipes.SWEEP in profiles.NAMED[name].shares:
        with pytest.raises(
            ConfigurationError, match=f"^profile: '{name}': .*: set devices.enabled, or take "
        ):
            profile_of(load_settings(f"profile: {name}"))
        assert profile_of(load_settings(f"profile: {name}\n{DEVICES}")).name == name
        return
    if not why:
        assert profile_of(load_settings(f"profile: {name}")).name == name
        return
    with pytest.raises(ConfigurationError, match=f"^profile: '{name}' runs in simulations only: {why}$"):
        profile_of(load_settings(f"profile: {name}"))
    assert name == "kube-default" or not profiles.NAMED[why.partition("; take ")[2]].simulation_only


def is_refused(text: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration with the plugins that are installed, in these words."""
    monkeypatch.setattr(points, "installed", REAL)
    with pytest.raises(ConfigurationError) as error:
        profile_of(load_settings(text))
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "profile: reshape-restart\npluginArgs: {reshape: {restart: false}}",
            f"pluginArgs.reshape.restart: {live_recipes.KEEPS}; found False",
        ),
        (
            "profile: similarity\npluginArgs: {similarity: {jp: true}}",
            f"pluginArgs.similarity.jp: {live_recipes.PAIRS} false",
        ),
        (
            "profile: gavel-ftf-perf\npluginArgs: {gavel-ftf: {packed: true}}",
            f"pluginArgs.gavel-ftf.packed: {live_recipes.PAIRS} false",
        ),
        (
            "profile: own\nprofiles: [{name: own, shares: [max-min], resize: hand-over}]",
            f"profile: 'own' has resize hand-over: {live_recipes.HAND_OVER} resize restart or in-place",
        ),
        (
            "profile: gavel-ftf\npluginArgs: {gavel-ftf: {idle: 0}}",
            f"pluginArgs.gavel-ftf.idle: {live_recipes.IDLES}",
        ),
        (
            "profile: gavel-ftf\npluginArgs: {gavel-ftf: {round: 60}}",
            "pluginArgs.gavel-ftf.round: must be the round of profile 'gavel-ftf', 360 s; found 60",
        ),
        (
            "profile: own\nprofiles: [{name: own, shares: [gavel-ftf], round: 60}]",
            "pluginArgs.gavel-ftf.round: must be the round of profile 'own', 60 s; found 360.0",
        ),
        (
            "profile: own\nprofiles: [{name: own, shares: [gavel-ftf]}]",
            "profile: 'own': gavel-ftf works in rounds; give the profile its round, 360.0 s",
        ),
        (
            "profile: gavel-ftf-perf\npluginArgs: {gavel-ftf: {untried: 0}}",
            "pluginArgs.gavel-ftf.untried: is looked at only with packed: true; leave it out",
        ),
        *(
            (
                f"profile: {name}\ndevices: {{enabled: true}}\npluginArgs: {{{name}: {{{switch}: true}}}}",
                f"pluginArgs.{name}: {switch}: must be false, this policy looks at no speeds and at no pairs",
            )
            for name in ("gavel-isolation", "gavel-fifo")
            for switch in ("perf", "packed")
        ),
        (
            "profile: gavel-max-min\ndevices: {enabled: true}\npluginArgs: {gavel-max-min: {packed: true}}",
            "pluginArgs.gavel-max-min: packed: wants perf: true, pairs are weighed by speeds",
        ),
    ],
)
def test_what_only_the_simulator_can_do_is_refused_with_what_to_take(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused(text, says, monkeypatch)


OWN = "profiles: [{name: own, shares: [max-min]}, {name: plain}]"


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        (
            "afs-l, max-min",
            "max-min decides anew, and what afs-l made before it would be lost: leave one of them out",
        ),
        (
            "resize-cost, afs-l",
            "afs-l decides anew, and what resize-cost made before it would be lost: put afs-l first",
        ),
        (
            "afs-l, network-packing, max-min, resize-cost",
            "max-min decides anew, and what network-packing made before it would be lost: leave one of them out",
        ),
        (
            "network-packing, altruistic, tide",
            "tide decides anew, and what altruistic made before it would be lost: put tide first",
        ),
    ],
)
def test_what_decides_anew_is_the_first_of_the_shares(
    shares: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"profile: own\nprofiles: [{{name: own, shares: [{shares}]}}]"
    is_refused(text, f"profile: 'own': shares: {says}", monkeypatch)


def test_a_policy_may_be_followed_by_several_that_adjust_or_be_one_of_those_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    for shares in ("afs-l, network-packing, altruistic", "altruistic", "altruistic, network-packing"):
        made = profile_of(load_settings(f"profile: own\nprofiles: [{{name: own, shares: [{shares}]}}]"))
        assert type(made.shares[-1]).__name__ == "ResizeCost"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "pluginArgs: {tide: {p: 0.3}}",
            "pluginArgs.tide: must be of a plugin that profile 'fifo' uses: pack; found {'p': 0.3}",
        ),
        (
            "profile: gang\npluginArgs: {gang-pack: {in_use: 25}}",
            "pluginArgs.gang-pack: must be of a plugin that profile 'gang' uses: gang; found {'in_use': 25}",
        ),
        (
            "profile: afs-l\npluginArgs: {grow-elsewhere: {horizon: 10}}",
            "pluginArgs.grow-elsewhere: must be of a plugin that profile 'afs-l' uses: afs-l, pack, reported, "
            "resize-cost, grow-elsewhere with devices.enabled: true; found {'horizon': 10}",
        ),
        (
            "profile: afs-l\nresizeCost: false\npluginArgs: {resize-cost: {horizon: 10}}",
            "pluginArgs.resize-cost: must be of a plugin that profile 'afs-l' uses: afs-l, pack, reported, "
            "resize-cost with resizeCost: true; found {'horizon': 10}",
        ),
        (
            "profile: max-min\nestimate: declared\npluginArgs: {reported: {ceiling: 10}}",
            "pluginArgs.reported: must be of a plugin that profile 'max-min' uses: declared, max-min, pack, "
            "resize-cost, reported with estimate: reported; found {'ceiling': 10}",
        ),
        (
            f"profile: fifo\n{OWN}\npluginArgs: {{tide: {{p: 0.3}}}}",
            "pluginArgs.tide: must be of a plugin that profile 'fifo' or another of profiles uses: max-min, pack, "
            "reported, resize-cost; found {'p': 0.3}",
        ),
        *(
            (
                f"profile: coach\npluginArgs: {{coach: {{static: [2, 2], {key}: {value}}}}}",
                f"pluginArgs.coach.{key}: is not looked at with static; leave one of them out",
            )
            for key, value in (("design", "[[1, 1]]"), ("budget", 600))
        ),
        (
            "profile: sidecar-default\npluginArgs: {sidecar-default: {draw: false, seed: 3}}",
            "pluginArgs.sidecar-default.seed: is looked at only with draw: true; leave it out",
        ),
        (
            "profile: reshape-restart\npluginArgs: {reshape: {up: false, worthwhile: true}}",
            "pluginArgs.reshape.worthwhile: is looked at only with up: true; leave it out",
        ),
        (
            "profile: afs-l\norder: strict",
            f"order: {live_recipes.SHARED}, as profile 'afs-l' does; found 'strict'",
        ),
        (
            "profile: own\nprofiles: [{name: own, rebalance: [specon], round: 60}]",
            "profile: 'own' has a round, 60 s, and no shares to make in it: leave it out",
        ),
        *(
            (
                f"profile: own\nprofiles: [{{name: own, scores: [{{name: pack}}], resize: {resize}}}]",
                f"profile: 'own' has resize {resize}, and neither shares nor rebalance: leave it out",
            )
            for resize in ("in-place", "hand-over")
        ),
        *(
            (
                f"profile: {name}\npluginArgs: {{{name}: {{products: [v100]}}}}",
                f"pluginArgs.{name}.products: is looked at only with perf: true; leave it out",
            )
            for name in ("gavel-ftf", "gavel-isolation")
        ),
    ],
)
def test_what_would_change_nothing_is_refused_with_where_it_would(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused(text, says, monkeypatch)


HOLDER = "lease: 45s, grace: 9, keep: 0, namespace: held, image: 'pause:9', report: hold, url: 'http://a:1'"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clusterScheduler: theirs", ["clusterScheduler: is looked at only with binder cluster; {}'theirs'"]),
        (
            "{binder: cluster, ports: {extender: 9081}}",
            ["ports.extender: is looked at only with binder own; {}9081"],
        ),
        (
            "tls: {certificates: /tls, hosts: [a.example], life: 30d}",
            [
                "tls.hosts: is looked at only with secret; {}['a.example']",
                "tls.life: is looked at only with secret; {}'30d'",
            ],
        ),
        (
            "autoscaler: {ask: none, after: 1m, limit: 5, provisioningClass: check-capacity.example}",
            [
                "autoscaler.provisioningClass: is looked at only with ask provisioning-request; "
                "{}'check-capacity.example'",
                "autoscaler.after: is looked at only with ask provisioning-request or ungate; {}'1m'",
                "autoscaler.limit: is looked at only with ask provisioning-request or ungate; {}5",
            ],
        ),
        (
            "autoscaler: {ask: ungate, after: 1m, limit: 5, provisioningClass: check-capacity.example}",
            [
                "autoscaler.provisioningClass: is looked at only with ask provisioning-request; "
                "{}'check-capacity.example'",
            ],
        ),
        (
            f"devices: {{enabled: false, {HOLDER}, priorityClass: ''}}",
            [
                f"devices.{key}: is looked at only with enabled: true; {{}}{found}"
                for key, found in (
                    *(("lease", "'45s'"), ("grace", "9"), ("keep", "0"), ("namespace", "'held'")),
                    *(("image", "'pause:9'"), ("report", "'hold'"), ("url", "'http://a:1'")),
                    ("priorityClass", "''"),
                )
            ],
        ),
        (
            "devices: {enabled: true, url: 'http://a:1'}",
            ["devices.url: is looked at only with report hold; {}'http://a:1'"],
        ),
        (
            "{clusterScheduler: theirs, profile: best}",
            [
                "clusterScheduler: is looked at only with binder cluster; {}'theirs'",
                "profile: must be one of ",
            ],
        ),
    ],
)
def test_what_is_looked_at_only_beside_another_setting_is_refused_without_it(
    text: str, says: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_settings(text)
    for line, wanted in zip(str(error.value).splitlines(), says, strict=True):
        assert line.startswith("configuration: " + wanted.format("leave it out; found "))


@pytest.mark.parametrize(
    "text",
    [
        "{binder: cluster, clusterScheduler: theirs, ports: {service: 8081}}",
        "{binder: own, ports: {extender: 9081}, leader: {own: true}}",
        "tls: {secret: made, hosts: [a.example], life: 30d}",
        "autoscaler: {ask: ungate, after: 1m, limit: 5}",
        "autoscaler: {ask: provisioning-request, provisioningClass: check-capacity.example, after: 1m}",
        "{autoscaler: {}, devices: {}, ports: {}}",
        f"devices: {{enabled: true, {HOLDER}}}",
    ],
)
def test_what_is_looked_at_beside_another_setting_is_taken_with_it(text: str) -> None:
    load_settings(text)


SILENT = "reporting: {enabled: false}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("profile: coach", "'coach': coach goes by what training reports: {}profile gang"),
        ("profile: specon", "'specon': specon goes by what training reports: {}profile specon-default"),
        (
            "profile: gavel-ftf-perf",
            "'gavel-ftf-perf': gavel-ftf with perf: true goes by what training reports: {}perf: false",
        ),
        (
            "profiles: [{name: own, shares: [max-min], rebalance: [specon]}]",
            "'own': specon goes by what training reports: {}profile specon-default",
        ),
    ],
)
def test_what_goes_by_reports_alone_is_refused_where_none_are_taken(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = says.format("set reporting.enabled, or take ")
    is_refused(f"{text}\n{SILENT}", f"profile: {words}", monkeypatch)
    assert profile_of(load_settings(text)).name in text or "profile: " not in text


@pytest.mark.parametrize(
    "profile", ["afs-l", "gavel-ftf", "gavel-fifo", "pollux", "termination", "specon-default"]
)
def test_without_reports_a_profile_goes_by_what_owners_declare(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    assert profile_of(load_settings(f"profile: {profile}\n{SILENT}")).name == profile


@pytest.mark.parametrize(
    "text",
    [
        f"profile: plain\n{OWN}\npluginArgs: {{max-min: {{}}, resize-cost: {{cost: 9}}}}",
        "profile: gavel-ftf-perf\npluginArgs: {gavel-ftf: {products: [v100]}}",
        "profile: specon\norder: strict\npluginArgs: {reported: {ceiling: 9}}",
        "profile: fifo\npluginArgs: {tide: {}}",
        "profile: coach\npluginArgs: {coach: {static: [2, 2], timeout: 5}}",
        "profile: coach\npluginArgs: {coach: {design: [[1, 1]], budget: 600}}",
        "profile: sidecar-default\npluginArgs: {sidecar-default: {seed: 3}}",
        "profile: sidecar-default\npluginArgs: {sidecar-default: {draw: false}}",
        "profile: reshape-restart\npluginArgs: {reshape: {restart: false, measured: false}}",
        f"profile: reshape-restart\npluginArgs: {{reshape: {{restart: false}}}}\n{DEVICES}",
    ],
)
def test_arguments_count_where_any_profile_of_the_configuration_has_the_plugin(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    assert profile_of(load_settings(text)).name in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "profile: own\nprofiles: [{name: own, shares: [tiresias-pollux], round: 60s}]",
            "profile: 'own': plugin 'tiresias-pollux' runs in simulations only: it repeats a simulator's figures; "
            "take tiresias-l",
        ),
        (
            "profile: own\nprofiles: [{name: own, shares: [optimus-pollux]}]",
            "profile: 'own': plugin 'optimus-pollux' runs in simulations only: it repeats a simulator's figures; "
            "take optimus",
        ),
        (
            "profile: own\nprofiles: [{name: own, shares: [max-min], estimate: optimus-pollux}]",
            "profile: 'own': the estimate 'optimus-pollux' is for simulations only; take reported or declared",
        ),
        (
            "profile: max-min\nestimate: optimus-pollux",
            "estimate: the estimate 'optimus-pollux' is for simulations only; take reported or declared",
        ),
    ],
)
def test_a_profile_of_ones_own_has_no_plugin_that_is_for_simulations(
    text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused(text, says, monkeypatch)


def test_a_profile_that_is_not_in_force_is_looked_at_too_and_all_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = """
profile: fifo
order: strict
pluginArgs: {gavel-ftf: {untried: 0}}
profiles:
- {name: measured, shares: [afs-p, sweep]}
- {name: rounds, shares: [gavel-ftf]}
- {name: often, rebalance: [specon], round: 60}
- {name: late, shares: [max-min], resize: hand-over}
- {name: twice, shares: [afs-l, tide]}
- {name: wrong, sort: pack, filters: [tetris], scores: [{name: pakc}]}
- {name: good, shares: [max-min]}
"""
    monkeypatch.setattr(points, "installed", REAL)
    with pytest.raises(ConfigurationError) as error:
        profile_of(load_settings(text))
    known = f"installed: {', '.join(sorted(REAL()))}"
    assert str(error.value).splitlines() == [
        f"profile: 'measured': {live_recipes.MEASURED} leave sweep out",
        "pluginArgs.gavel-ftf.untried: is looked at only with packed: true; leave it out",
        "profile: 'rounds': gavel-ftf works in rounds; give the profile its round, 360.0 s",
        "profile: 'often' has a round, 60 s, and no shares to make in it: leave it out",
        f"profile: 'late' has resize hand-over: {live_recipes.HAND_OVER} resize restart or in-place",
        "profile: 'twice': shares: tide decides anew, and what afs-l made before it would be lost: "
        "leave one of them out",
        "profile wrong: sort: plugin 'pack' is no QueueSort",
        f"profile wrong: filters: plugin 'tetris' is not installed; {known}; did you mean 'themis'?",
        f"profile wrong: scores: plugin 'pakc' is not installed; {known}; did you mean 'pack'?",
    ]


@pytest.mark.parametrize(
    ("profile", "plugin", "argument", "found", "wanted"),
    [
        ("sidecar-default", "sidecar-default", "draw", "'no'", "true or false"),
        ("reshape-restart", "reshape", "up", "1", "true or false"),
        ("coach", "coach", "worker", "[worker]", "text"),
    ],
)
def test_a_parameter_of_another_type_is_named(
    profile: str, plugin: str, argument: str, found: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused(
        f"profile: {profile}\npluginArgs: {{{plugin}: {{{argument}: {found}}}}}",
        f"pluginArgs.{plugin}.{argument}: expected {wanted}, found {yaml.safe_load(found)!r}",
        monkeypatch,
    )


@pytest.mark.parametrize(
    ("plugin", "has"),
    [
        ("reported", "ceiling, fair"),
        ("specon", "across, alpha, interval, most_moves, rebalance, smoothing, w_cc, w_pc, w_wc"),
    ],
)
def test_the_seconds_of_a_change_are_no_parameter_where_nobody_asks_for_them(
    plugin: str, has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_refused(
        f"profile: specon\npluginArgs: {{{plugin}: {{cost: 9}}}}",
        f"pluginArgs.{plugin}.cost: not a parameter of {plugin}; it has: {has}",
        monkeypatch,
    )


@pytest.mark.parametrize("profile", ["reshape-restart", "termination"])
@pytest.mark.parametrize("found", ["3", "{vgg: [1, 2]}", "{vgg: [[1, high]]}", "{vgg: ab}"])
def test_accuracies_that_are_no_points_are_refused(
    profile: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = profile.partition("-")[0]
    is_refused(
        f"profile: {profile}\npluginArgs: {{{plugin}: {{accuracy: {found}}}}}",
        f"pluginArgs.{plugin}: accuracy: expected [[iterations, accuracy], ...] by model, found "
        f"{yaml.safe_load(found)!r}",
        monkeypatch,
    )


def test_shares_are_computed_whenever_something_changes_with_a_round_of_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    text = "profile: own\nprofiles: [{name: own, shares: [max-min], round: 0}]"
    assert profile_of(load_settings(text)).round == 0.0


def test_a_parameter_is_checked_for_a_profile_that_is_not_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    is_refused(
        "profile: fifo\nprofiles: [{name: own, shares: [themis]}]\npluginArgs: {themis: {lease: long}}",
        "pluginArgs.themis.lease: expected a number, found 'long'",
        monkeypatch,
    )


def test_an_unknown_profile_and_faults_of_ones_own_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    with pytest.raises(ConfigurationError) as error:
        profile_of(load_settings("profile: best\nprofiles: [{name: own, rebalance: [defragment], round: 9}]"))
    unknown, of_own = str(error.value).splitlines()
    assert unknown.startswith("profile: must be one of ")
    assert of_own == "profile: 'own' has a round, 9 s, and no shares to make in it: leave it out"


def test_an_argument_that_the_profile_in_force_looks_at_is_none_of_the_others_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    text = (
        f"profile: gavel-ftf-packed\npluginArgs: {{gavel-ftf: {{untried: 1}}}}\n{DEVICES}\n"
        "profiles: [{name: own, shares: [gavel-ftf], round: 360}]"
    )
    assert profile_of(load_settings(text)).name == "gavel-ftf-packed"


def test_plugins_for_simulations_are_those_of_the_profiles_for_simulations() -> None:
    said = {
        name: getattr(found.load(), "SIMULATION_ONLY", "")
        for name, found in REAL().items()
        if hasattr(found.load(), "SIMULATION_ONLY")
    }
    theirs = {
        share: known.simulation_only
        for known in profiles.NAMED.values()
        for share in known.shares
        if known.simulation_only
    }
    assert said == theirs


def test_each_problem_has_a_line_of_its_own() -> None:
    with pytest.raises(ConfigurationError) as error:
        load_settings("order: fast\nmode: slow\nports: {service: -1}")
    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-such-file"):
        load_settings(tmp_path / "no-such-file")


def test_the_example_of_an_own_profile_loads() -> None:
    found = profile_of(load_settings(Path(__file__).parents[2] / "config" / "profiles" / "own.yaml"))
    assert (found.name, [weight for _, weight in found.scores], found.placement) == (
        "ours",
        [3.0, 1.0],
        "pinned",
    )


def test_two_profiles_of_a_plugin_in_rounds_may_have_different_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "installed", REAL)
    text = "profile: gavel-max-min\nprofiles: [{name: own, shares: [gavel-max-min], round: 5m}]"
    assert profile_of(load_settings(text)).round == 360.0
