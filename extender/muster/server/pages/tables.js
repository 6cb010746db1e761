// The queue and the jobs as tables: one row a job, drawn anew only where something of it changed.

import { h, sync, text } from "./dom.js";
import { look } from "./colours.js";
import { clock, duration, identity, percent, plural, seconds, tag, until } from "./words.js";

const SHOWN = 100; // rows at first; a thousand are there when they are asked for
const byNumber = new Intl.Collator("en", { numeric: true });

const COLUMNS = [
  { name: "Job", order: (a, b) => byNumber.compare(a.namespace, b.namespace) || byNumber.compare(a.name, b.name) },
  { name: "State", order: (a, b) => a.state.localeCompare(b.state) || byNumber.compare(a.name, b.name) },
  { name: "Replicas", order: (a, b) => granted(b) - granted(a) },
  { name: "GPUs", order: (a, b) => used(b) - used(a) },
  { name: "Progress", order: (a, b) => (b.progress ?? -1) - (a.progress ?? -1) },
  { name: "Expected end", order: (a, b) => (seconds(a.end) ?? Infinity) - (seconds(b.end) ?? Infinity) },
];

/** A table that is kept, with a way to see all of its rows. */
export class Rows {
  constructor(root, columns, row, none) {
    this.row = row;
    this.none = none;
    this.all = false;
    this.sorted = { column: null, down: false };
    this.body = h("tbody");
    this.heads = columns.map((column) =>
      h("th", { scope: "col" }, column.order ? h("button", { type: "button", class: "sort", on: { click: () => this.sort(column) } }, column.name) : column.name),
    );
    this.columns = columns;
    this.table = h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.quiet = h("p", { class: "quiet" });
    this.more = h("button", { type: "button", class: "more", on: { click: () => this.showAll() } });
    root.append(h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": none.about }, this.table), this.quiet, this.more);
  }

  showAll() {
    this.all = true;
    this.draw();
  }

  sort(column) {
    this.sorted = { column, down: this.sorted.column === column && !this.sorted.down };
    this.heads.forEach((head, i) => {
      if (this.columns[i] === column) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.draw();
  }

  /** jobs: those to show; context: what a row needs beside its job. */
  update(jobs, context) {
    this.jobs = jobs;
    this.context = context;
    this.draw();
  }

  draw() {
    let jobs = this.jobs;
    const { column, down } = this.sorted;
    if (column) jobs = [...jobs].sort((a, b) => (down ? -1 : 1) * column.order(a, b));
    const shown = this.all ? jobs : jobs.slice(0, SHOWN);
    this.table.hidden = shown.length === 0;
    text(this.quiet, shown.length ? "" : this.none.words(this.context));
    this.more.hidden = shown.length === jobs.length;
    text(this.more, `Show all ${jobs.length}`);
    sync(
      this.body,
      shown.map((job) => ({ job, cells: this.row(job, this.context) })),
      ({ job }) => identity(job),
      ({ job, cells }) => look(identity(job)) + JSON.stringify(cells.map((cell) => cell.signature ?? cell)),
      ({ job, cells }) => drawRow(job, cells),
    );
  }
}

function drawRow(job, cells) {
  return h("tr", { "data-job": identity(job) }, cells.map((cell) => h("td", { class: cell.class, title: cell.title }, cell.make ? cell.make() : cell.words)));
}

/** The queue: place, job, what it needs, when it is expected to start, and why it waits. */
export function queueTable(root, open) {
  return new Rows(
    root,
    [{ name: "Place" }, { name: "Job" }, { name: "GPUs" }, { name: "Waits" }, { name: "Expected start" }, { name: "Why" }],
    (job, { now }) => [
      { words: job.position === null ? "–" : String(job.position), class: "place" },
      name(job, open),
      { words: String(job.gpus), class: "count" },
      { words: waited(job, now), title: clock(job.submitted) },
      expected(job, now),
      { words: job.message, class: "message" },
    ],
    { about: "Queue", words: ({ hidden }) => (hidden ? `None of your jobs waits; ${plural(hidden, "job")} of others ${hidden === 1 ? "does" : "do"}.` : "Nobody waits.") },
  );
}

/** All jobs that run, or are on their way. */
export function jobsTable(root, open) {
  return new Rows(
    root,
    [...COLUMNS, { name: "Says" }],
    (job, { now }) => [
      name(job, open),
      { words: job.state, class: `state ${job.state.toLowerCase()}` },
      share(job),
      { words: String(used(job)), class: "count" },
      progress(job),
      end(job, now),
      { words: job.message, class: "message" },
    ],
    { about: "Jobs", words: ({ sought }) => (sought ? `No job that runs has ${JSON.stringify(sought)} in its name, state or reason.` : "No job runs.") },
  );
}

/** The queue first; then those that could not enter it, as their reason says. */
export function waits(job) {
  return job.position !== null || job.state === "Incomplete" || job.state === "Invalid" || job.state === "Suspended" || job.state === "Waiting";
}

export function inQueue(a, b) {
  return (a.position ?? Infinity) - (b.position ?? Infinity) || byNumber.compare(a.name, b.name);
}

function waited(job, now) {
  return duration(now - (seconds(job.submitted) ?? now));
}

function name(job, open) {
  return {
    signature: [job.namespace, job.name],
    make: () => [
      h("i", { class: `cell swatch ${look(identity(job))} bound`, "aria-hidden": "true" }, tag(job.name)),
      h("button", { type: "button", class: "link", "data-focus": "open", on: { click: () => open(job) } }, h("span", { class: "of" }, `${job.namespace}/`), job.name),
    ],
    class: "name",
  };
}

function expected(job, now) {
  if (!job.eta) return { words: job.expected ?? "not known: it is not in the queue yet", class: "unknown" };
  const when = until(job.eta, now);
  return { signature: [when, job.expected], title: clock(job.eta), make: () => [`${when}, `, h("small", { class: "sure" }, job.expected)], class: "start" };
}

function share(job) {
  const role = shareOf(job);
  if (!role) return { words: "" };
  const others = job.inPlace ? [] : Object.entries(job.roles).filter(([other]) => other !== job.elastic).map(([other, r]) => `${r.bound} ${other}`);
  const words = role.min === role.max ? `${role.bound}/${role.max}` : `${role.bound} of ${role.min}–${role.max}`;
  const gives = job.inPlace && role.granted < role.bound ? ` (−${role.bound - role.granted})` : "";
  const grows = (role.granted > role.bound ? ` (+${role.granted - role.bound})` : gives) + (job.inPlace ? " GPUs" : "");
  return {
    signature: [words, grows, others],
    class: "share",
    title: `${job.inPlace ? `GPUs in place on ${job.inPlace.nodes.join(", ")}: ` : ""}${role.bound} now, at least ${role.min}, at most ${role.max}`,
    make: () => [bar(role), h("span", {}, words, grows, others.length ? `, ${others.join(", ")}` : "")],
  };
}

/** From 0 to the most: filled to what it has, a mark at the least. */
export function bar(role) {
  const most = Math.max(role.max, role.granted, 1);
  return h("span", {
    class: role.min === role.max ? "bar rigid" : "bar",
    "aria-hidden": "true",
    vars: { "--now": role.bound / most, "--soon": role.granted / most, "--least": role.min / most },
  });
}

function progress(job) {
  if (job.progress === null) return { words: "unknown", class: "unknown", title: "nobody reports it" };
  return { signature: [percent(job.progress)], class: "progress", make: () => [meter(job.progress), percent(job.progress)] };
}

export function meter(part) {
  return h("span", { class: "meter", "aria-hidden": "true", vars: { "--now": part } });
}

function end(job, now) {
  if (job.end) return { words: until(job.end, now), title: clock(job.end) };
  return { words: job.endUnknown ? "unknown" : "", class: "unknown", title: job.endUnknown ? `unknown: ${job.endUnknown}` : "" };
}

function granted(job) {
  return shareOf(job)?.granted ?? 0;
}

/** What the job has a share of: replicas of a role, or GPUs of its pod; undefined where its size is nobody's to choose. */
export function shareOf(job) {
  return job.inPlace ?? job.roles[job.elastic];
}

/** GPUs of what is on nodes or has a place; nothing while it only waits. */
export function used(job) {
  if (job.inPlace) return job.inPlace.bound;
  const any = Object.values(job.roles).some((role) => role.granted > 0);
  return any ? job.gpus : 0;
}
