// One job in full: why it is where it is, its share over time, how fast it would be at other sizes, its replicas.

import { h, sync } from "./dom.js";
import { look } from "./colours.js";
import { shareChart, speedChart } from "./charts.js";
import { bar, meter, shareOf, used } from "./tables.js";
import { ago, clock, duration, identity, number, percent, plural, tag, until } from "./words.js";

const SHOWN = 64; // replicas that are listed

/** Draws GET /v1/jobs/{namespace}/{name}. */
export function drawJob(root, job, now, close) {
  const role = shareOf(job) ?? { min: 0, max: 0, granted: 0, bound: 0 };
  const parts = [
    { key: "head", on: [identity(job), look(identity(job)), job.state], make: () => head(job, close) },
    { key: "message", on: [job.message], make: () => h("p", { class: "says" }, job.message) },
    { key: "why", on: [job.why, job.keeps, job.scored], make: () => why(job) },
    { key: "facts", on: facts(job, role, now).map(({ words, part, role: shown }) => [words, part, shown]), make: () => list(facts(job, role, now)) },
    { key: "devices", on: [job.inPlace?.devices], make: () => devices(job) },
    { key: "shares", on: [job.shares, role, job.shares.length > 1 ? Math.floor(now / 10) : 0], make: () => shares(job, role, now) },
    { key: "speeds", on: [job.speeds, role.bound], make: () => speeds(job, role) },
    { key: "replicas", on: [job.replicas], make: () => replicas(job) },
  ];
  sync(root, parts, (part) => part.key, (part) => JSON.stringify(part.on), (part) => part.make());
}

/** The job that was open is not there any more, or can't be read. */
export function drawNoJob(root, words, close) {
  sync(root, [words], () => "none", () => words, () => h("div", {}, h("div", { class: "job-head" }, h("h2", { id: "job-title" }, "Job"), closer(close)), h("p", { class: "says" }, words)));
}

function head(job, close) {
  return h(
    "div",
    { class: "job-head" },
    h("i", { class: `cell swatch ${look(identity(job))} bound`, "aria-hidden": "true" }, tag(job.name)),
    h("h2", { id: "job-title" }, h("span", { class: "of" }, `${job.namespace}/`), job.name),
    h("span", { class: `state ${job.state.toLowerCase()}` }, job.state),
    closer(close),
  );
}

function closer(close) {
  return h("button", { type: "button", class: "close", "data-focus": "close", "aria-label": "Close this job", on: { click: close } }, "×");
}

function why(job) {
  const said = [job.why, job.keeps ? `It can't become smaller now: ${job.keeps}` : "", job.scored.length ? `kube-scheduler chooses its nodes: ${job.scored.join(", ")}` : ""].filter(Boolean);
  if (!said.length) return h("div", { hidden: true });
  return h("div", { class: "why" }, h("h3", {}, "Why this share"), said.map((words) => h("p", {}, words)));
}

function facts(job, role, now) {
  const elastic = role.min !== role.max;
  const place = job.inPlace;
  const sizes = place ? place.sizes : job.sizes;
  const found = [
    { term: place ? "GPUs in place" : `Replicas${job.elastic && job.elastic !== "worker" ? ` (${job.elastic})` : ""}`, words: elastic ? `${role.bound} now, ${role.min} to ${role.max}${sizes.length && sizes.length <= role.max - role.min ? ` (${sizes.join(", ")})` : ""}${role.granted > role.bound ? `, ${role.granted - role.bound} more on the way` : ""}${place && role.granted < role.bound ? `, ${role.bound - role.granted} about to be handed over` : ""}` : `${role.bound} of ${role.max}`, role },
    ...(place?.changed ? [{ term: place.handOver === null ? "Taken up" : "Last hand-over", words: `${place.handOver === null ? "" : `took ${number(place.handOver)} s, GPUs idle ${number(place.idle)} s, `}${ago(place.changed, now)}`, title: clock(place.changed) }] : []),
    { term: "GPUs", words: used(job) ? `${job.gpus} in use${Object.values(job.roles).some((r) => r.granted > r.bound) ? " or held" : ""}` : `${job.gpus} needed to start` },
    { term: "Progress", words: job.progress === null ? "unknown: nobody reports or declares how much there is to do" : percent(job.progress), part: job.progress },
  ];
  if (job.position !== null) {
    found.push({ term: "Place in the queue", words: String(job.position) });
    found.push({ term: "Expected start", words: job.eta ? `${until(job.eta, now)}, ${job.expected}` : job.expected, title: clock(job.eta) });
  } else if (job.expected) {
    found.push({ term: "Expected start", words: job.expected }); // it never fits
  } else if (job.end || job.endUnknown) {
    found.push({ term: "Expected end", words: job.end ? until(job.end, now) : `unknown: ${job.endUnknown}`, title: clock(job.end) });
  }
  const cost = job.resizeCost === null ? "" : `; one costs about ${number(job.resizeCost)} s (median of the last)`;
  const last = job.lastResize ? `, the last ${ago(job.lastResize, now)}` : "";
  if (!place) found.push({ term: "Resizes", words: job.resizes ? `${job.resizes}${last}${cost}` : "none so far" });
  if (job.moves || job.restarts) found.push({ term: "Moves, restarts", words: `${job.moves}, ${job.restarts}` });
  if (job.report) {
    const r = job.report;
    const told = [`step ${number(r.step)}${r.total ? ` of ${number(r.total)}` : ""}`, r.loss === null ? "" : `loss ${number(r.loss)}`, r.speed ? `${number(r.speed)} iterations/s` : ""];
    found.push({ term: "Last report", words: `${told.filter(Boolean).join(", ")}, ${ago(r.at, now)}` });
  }
  if (job.gpuSeconds) found.push({ term: "GPU time", words: duration(job.gpuSeconds) });
  found.push({ term: "Submitted", words: `${ago(job.submitted, now)}`, title: clock(job.submitted) });
  if (job.started) found.push({ term: "Started", words: ago(job.started, now), title: clock(job.started) });
  if (job.priority) found.push({ term: "Priority", words: String(job.priority) });
  if (job.owner) found.push({ term: "Owner", words: `${job.owner.kind} ${job.owner.name}` });
  if (job.model) found.push({ term: "Model", words: job.model });
  const near = job.topologyRequired ? `required: ${job.topologyRequired}` : job.topologyPreferred ? `preferred: ${job.topologyPreferred}` : "";
  if (near) found.push({ term: "Close together", words: near });
  return found;
}

function list(found) {
  return h(
    "dl",
    {},
    found.map(({ term, words, title, part, role }) => [
      h("dt", {}, term),
      h("dd", { title }, role ? bar(role) : "", typeof part === "number" ? meter(part) : "", words),
    ]),
  );
}

function shares(job, role, now) {
  if (job.inPlace) return h("div", { hidden: true }); // of its pod: nobody keeps how its GPUs changed
  if (!job.shares.length) return h("div", {}, h("h3", {}, "Share over time"), h("p", { class: "quiet" }, role.bound ? "No change was recorded." : "It has not run yet."));
  return h("div", {}, h("h3", {}, "Share over time ", h("small", {}, "replicas")), shareChart(job.shares, role, now));
}

function speeds(job, role) {
  const { measured, estimated } = job.speeds;
  const unit = job.inPlace ? job.speeds.unit.replace("replica", "GPU") : job.speeds.unit;
  const at = new Map(estimated);
  const sizes = [...new Set([...measured.map(([n]) => n), ...estimated.map(([n]) => n)])].sort((a, b) => a - b);
  const rows = sizes.map((n) => {
    const own = measured.filter(([m]) => m === n).map(([, speed]) => number(speed));
    return h("tr", {}, h("th", { scope: "row" }, String(n)), h("td", {}, own.join(", ") || "–"), h("td", {}, at.has(n) ? number(at.get(n)) : "–"));
  });
  return h(
    "div",
    {},
    h("h3", {}, job.inPlace ? "Speed by GPUs " : "Speed by replicas ", h("small", {}, unit)),
    speedChart(job.speeds, role.bound),
    h("p", { class: "key" }, h("i", { class: "dot" }), measured.length ? "measured" : "measured: nothing yet", h("i", { class: "dash" }), "estimate", role.bound ? [h("i", { class: "mark" }), "now"] : []),
    h("details", {}, h("summary", {}, "Numbers"), h("table", {}, h("thead", {}, h("tr", {}, [job.inPlace ? "GPUs" : "Replicas", "Measured", "Estimate"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows))),
  );
}

/** Which devices a job in place has. */
function devices(job) {
  const found = job.inPlace?.devices ?? [];
  if (!found.length) return h("div", { hidden: true });
  const row = ({ id, node, state, jobs }) => h("tr", {}, h("td", {}, h("code", {}, id)), h("td", {}, node), h("td", {}, state === "reserved" ? "on its way" : state, jobs > 1 ? ", shared" : ""));
  return h("div", {}, h("h3", {}, "Devices"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Device", "Node", "State"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, found.map(row)))));
}

function replicas(job) {
  const shown = job.replicas.slice(0, SHOWN);
  const rest = job.replicas.length - shown.length;
  return h(
    "div",
    {},
    h("h3", {}, "Replicas"),
    shown.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["Pod", "Role", "Node", "State"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, shown.map((r) => h("tr", {}, h("td", {}, r.pod || "(not created yet)"), h("td", {}, r.role), h("td", {}, r.node || "–"), h("td", {}, r.state)))))) : h("p", { class: "quiet" }, "None exists."),
    rest > 0 ? h("p", { class: "quiet" }, `and ${plural(rest, "more replica")}`) : "",
  );
}
