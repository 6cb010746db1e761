// The last hand-overs of GPUs between pods that go on: of each job, how many it had and has, and how long that took.

import { h, sync } from "./dom.js";
import { look } from "./colours.js";
import { ago, clock, identity, number, tag } from "./words.js";

/** Draws `handOvers` of /v1/cluster; hidden while there are none. */
export function drawHandOvers(root, data, now, open) {
  root.hidden = data.handOvers.length === 0;
  const rows = data.handOvers.map((one) => ({ ...one, job: data.jobs[one.job] }));
  sync(
    root.querySelector("tbody"),
    rows,
    (row) => `${row.at} ${identity(row.job)} ${row.after}`,
    (row) => JSON.stringify([row, ago(row.at, now), look(identity(row.job))]),
    (row) => draw(row, now, open),
  );
}

function draw({ at, job, node, before, after, took, idle }, now, open) {
  return h(
    "tr",
    { "data-job": identity(job) },
    h("td", { title: clock(at) }, ago(at, now)),
    h(
      "td",
      { class: "name" },
      h("i", { class: `cell swatch ${look(identity(job))} bound`, "aria-hidden": "true" }, tag(job.name)),
      h("button", { type: "button", class: "link", "data-focus": "open", on: { click: () => open(job) } }, h("span", { class: "of" }, `${job.namespace}/`), job.name),
    ),
    h("td", { class: "count" }, `${before} → ${after}`),
    h("td", {}, node),
    h("td", {}, `${number(took)} s`),
    h("td", {}, idle === null ? "–" : `${number(idle)} s`),
  );
}
