// The cluster's GPUs: racks, nodes, and a cell for each GPU. Kubernetes does not tell which device a pod has: cells
// of a node stand in the order of the jobs. Of jobs in place Muster knows the devices, and the cells name them.

import { h, sync, text } from "./dom.js";
import { look } from "./colours.js";
import { identity, plural, tag } from "./words.js";

const FOREIGN = -1;
const OTHERS = -2;
const KEPT = -3;
const TAGGED = 40; // nodes up to which cells are large enough for letters
const SIZES = [[40, "large"], [100, "medium"], [Infinity, "small"]];
const byNumber = new Intl.Collator("en", { numeric: true });

const STATES = {
  bound: "in use",
  held: "held: planned, not bound yet",
  ending: "ending, or about to be handed over",
  kept: "held by Muster for jobs in place, and used by none now",
  others: "of these, jobs outside the namespace that is shown",
  foreign: "used by pods that are not Muster's",
  closed: "free, but on a node that is cordoned or not ready",
  free: "free",
};
const WORDS = { bound: "in use", held: "held", ending: "ending", kept: "kept for jobs in place", others: "of other namespaces", foreign: "not Muster's", closed: "closed", free: "free" };

/** The strip of sums: the same looks as the cells, so it is the legend, too. */
export function drawSums(root, data) {
  const sums = { ...data.gpus, others: data.nodes.flatMap((node) => node.cells).reduce((sum, [job, , count]) => sum + (job === OTHERS ? count : 0), 0) };
  const looks = { bound: "c4 bound", held: "c4 held", ending: "c4 ending", others: "others bound" };
  sync(
    root,
    Object.keys(STATES).filter((state) => sums[state] || state === "free" || state === "bound"),
    (state) => state,
    (state) => String(sums[state]),
    (state) => h("span", { class: "sum", title: STATES[state] }, h("i", { class: `cell ${looks[state] ?? state}` }), h("b", {}, String(sums[state])), ` ${WORDS[state]}`),
  );
}

/** Draws the nodes of /v1/cluster. `open` is called with the job of a cell that was chosen. */
export function drawPicture(root, data, open) {
  const nodes = [...data.nodes].sort((a, b) => byNumber.compare(a.name, b.name));
  root.dataset.size = SIZES.find(([most]) => nodes.length <= most)[1];
  root.classList.toggle("tagged", nodes.length <= TAGGED);
  const racks = new Map();
  for (const node of nodes) {
    if (!racks.has(node.rack)) racks.set(node.rack, []);
    racks.get(node.rack).push(node);
  }
  const grouped = [...racks.keys()].sort((a, b) => (a === "") - (b === "") || byNumber.compare(a, b));
  const tagged = nodes.length <= TAGGED;
  sync(root, grouped, (rack) => rack, () => "", (rack) => emptyRack(rack));
  for (const element of root.children) {
    const own = racks.get(element.key);
    const gpus = own.reduce((sum, node) => sum + node.gpus, 0);
    const free = own.reduce((sum, node) => sum + (node.closed ? 0 : left(node)), 0);
    text(element.querySelector(".rack-name"), element.key || (grouped.length > 1 ? "no rack" : "nodes"));
    text(element.querySelector(".rack-free"), `${free} of ${plural(gpus, "GPU")} free`);
    sync(
      element.querySelector(".nodes"),
      own,
      (node) => node.name,
      (node) => JSON.stringify([node.gpus, node.closed, node.slices, tagged, node.cells.map(([job, state, count]) => [dressed(data, job), state, count]), (node.devices ?? []).map(([id, , jobs]) => [id, jobs.map((job) => dressed(data, job))])]),
      (node) => drawNode(node, data, tagged, open),
    );
  }
  const focusable = root.querySelector('.cell[tabindex="0"]');
  if (!focusable) root.querySelector(".nodes .cell")?.setAttribute("tabindex", "0");
}

function dressed(data, job) {
  return job < 0 ? job : identity(data.jobs[job]) + look(identity(data.jobs[job]));
}

function emptyRack(rack) {
  return h(
    "div",
    { class: "rack", role: "rowgroup", "aria-label": rack || "nodes without a rack" },
    h("div", { class: "rack-head", role: "presentation" }, h("span", { class: "rack-name" }), h("span", { class: "rack-free" })),
    h("div", { class: "nodes", role: "presentation" }),
  );
}

function drawNode(node, data, tagged, open) {
  const cells = [];
  const devices = new Map(); // of each job that they are drawn for, those that are not drawn yet
  for (const [id, state, jobs] of node.devices ?? []) {
    if (state === "in use" && jobs.length) devices.set(jobs[0], [...(devices.get(jobs[0]) ?? []), { id, jobs }]);
  }
  for (const [number, state, count] of [...node.cells].sort(order)) {
    for (let i = 0; i < count; i++) cells.push(drawCell(node, data, number, state, count, tagged, open, state === "held" ? null : devices.get(number)?.shift()));
  }
  const state = node.closed ? "closed" : "free";
  const words = node.closed ? `free, but the node is ${node.closed}` : "free";
  while (cells.length < node.gpus) cells.push(plain(state, words, `${left(node)} of ${plural(node.gpus, "GPU")} ${words}`, node));
  const slices = node.slices ? `${node.slices[0]} of ${plural(node.slices[1], "MIG slice")} free` : "";
  const about = [node.name, node.product, slices, node.closed].filter(Boolean).join(", ");
  return h(
    "div",
    { class: node.closed ? "node shut" : "node", role: "row", "aria-label": about },
    h("span", { class: "node-name", role: "rowheader", title: about }, node.name, node.closed ? h("small", {}, node.closed) : "", node.slices ? h("small", { class: "slices" }, `${node.slices[0]} of ${node.slices[1]}g free`) : ""),
    h("span", { class: "cells", role: "presentation" }, cells),
  );
}

/** Jobs first, each in one piece; then what is not ours, then who is hidden. */
function order([a, stateA], [b, stateB]) {
  return (a < 0) - (b < 0) || (a < 0 ? b - a : a - b) || stateA.localeCompare(stateB);
}

/** device: of a job in place, {id, jobs}: with two jobs it is one of a pair, and drawn as two halves. */
function drawCell(node, data, number, state, count, tagged, open, device) {
  if (number === FOREIGN) return plain("foreign", "pods that are not Muster's", `${plural(count, "GPU")} here`, node);
  if (number === KEPT) return plain("kept", "kept for jobs in place", `${plural(count, "GPU")} here, ${STATES.kept}`, node);
  if (number === OTHERS) return plain(`others ${state}`, "other namespaces", `${plural(count, "GPU")} here, ${STATES[state]}`, node);
  const job = data.jobs[number];
  const name = `${job.namespace}/${job.name}`;
  const others = (device?.jobs ?? []).slice(1);
  const together = others.map((other) => (other < 0 ? "a job of another namespace" : `${data.jobs[other].namespace}/${data.jobs[other].name}`));
  const shared = together.length ? `, shared with ${together.join(", ")}` : "";
  const cell = h(
    "button",
    {
      type: "button",
      role: "gridcell",
      class: `cell job ${look(identity(job))} ${state}`,
      tabindex: "-1",
      "data-job": identity(job),
      "data-tip": name,
      "data-more": `${device ? `${device.id}${shared}; ` : ""}${plural(count, "GPU")} on ${node.name}, ${STATES[state]}`,
      "aria-label": `${name}${shared}, ${STATES[state]}, on ${node.name}${device ? `, ${device.id}` : ""}`,
      on: { click: () => open(job) },
    },
    tagged && !others.length ? tag(job.name) : "",
    others.map((other) => h("i", { class: `half ${other < 0 ? "others" : look(identity(data.jobs[other]))}`, "aria-hidden": "true" })),
  );
  return cell;
}

function plain(look, words, more, node) {
  return h("span", { role: "gridcell", tabindex: "-1", class: `cell ${look}`, "data-tip": words, "data-more": `${more}, on ${node.name}`, "aria-label": `${words}, on ${node.name}` });
}

function left(node) {
  return Math.max(0, node.gpus - node.cells.reduce((sum, [, , count]) => sum + count, 0));
}

/** Arrow keys: left and right along the cells, up and down to the next node's; one cell at a time takes the Tab key. */
export function walkWithKeys(root) {
  root.addEventListener("keydown", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    const all = [...root.querySelectorAll(".nodes .cell")];
    const here = all.indexOf(cell);
    const rows = [...root.querySelectorAll(".node")];
    const row = rows.indexOf(cell.closest(".node"));
    const column = [...cell.parentElement.children].indexOf(cell);
    const inRow = (to) => {
      const cells = rows[to]?.querySelectorAll(".cell");
      return cells?.[Math.min(column, cells.length - 1)];
    };
    const to = {
      ArrowRight: () => all[here + 1],
      ArrowLeft: () => all[here - 1],
      ArrowDown: () => inRow(row + 1),
      ArrowUp: () => inRow(row - 1),
      Home: () => all[0],
      End: () => all[all.length - 1],
    }[event.key]?.();
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
  root.addEventListener("focusin", (event) => {
    const cell = event.target.closest(".cell");
    if (!cell) return;
    for (const before of root.querySelectorAll('.cell[tabindex="0"]')) before.setAttribute("tabindex", "-1");
    cell.setAttribute("tabindex", "0");
  });
}

/** A job that is pointed at, or has the focus, stands out wherever it is shown. */
export function highlight(root, tip) {
  const light = (element) => {
    const job = element?.closest?.("[data-job]")?.dataset.job ?? "";
    if (job !== lit) {
      for (const one of root.querySelectorAll(".lit")) one.classList.remove("lit");
      if (job) for (const one of root.querySelectorAll(`[data-job="${CSS.escape(job)}"]`)) one.classList.add("lit");
      lit = job;
      root.classList.toggle("has-lit", Boolean(job) && Boolean(root.querySelector(".cell.lit")));
    }
    const told = element?.closest?.("[data-tip]");
    if (!told) return void (tip.hidden = true);
    tip.replaceChildren(h("b", {}, told.dataset.tip), h("span", {}, told.dataset.more ?? ""));
    tip.hidden = false;
    const at = told.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const x = Math.min(Math.max(8, at.left + at.width / 2 - own.width / 2), window.innerWidth - own.width - 8);
    const above = at.top - own.height - 6;
    tip.style.setProperty("left", `${x}px`);
    tip.style.setProperty("top", `${above > 4 ? above : at.bottom + 6}px`);
  };
  root.addEventListener("pointerover", (event) => light(event.target));
  root.addEventListener("pointerleave", () => light(document.activeElement));
  root.addEventListener("focusin", (event) => light(event.target));
  root.addEventListener("focusout", () => light(null));
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") tip.hidden = true;
  });
  window.addEventListener("scroll", () => (tip.hidden = true), { passive: true });
}

let lit = "";
/** What is drawn anew under the pointer takes part in what stands out. */
export function stillLit(root) {
  if (!lit) return;
  for (const one of root.querySelectorAll(`[data-job="${CSS.escape(lit)}"]`)) one.classList.add("lit");
  root.classList.toggle("has-lit", Boolean(root.querySelector(".cell.lit")));
}
