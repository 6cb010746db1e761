// The page: what is asked for, how often, and which part draws it. The address (#namespace=...&job=...) says what is shown.

import { h, sync, text } from "./dom.js";
import { dress } from "./colours.js";
import { drawPicture, drawSums, highlight, stillLit, walkWithKeys } from "./picture.js";
import { drawHandOvers } from "./handovers.js";
import { drawJob, drawNoJob } from "./job.js";
import { inQueue, jobsTable, queueTable, waits } from "./tables.js";
import { ask, forget, namespaceOf, Pulse, Refused, token } from "./source.js";
import { duration, identity } from "./words.js";

const OLD = 10; // s without an answer after which data is called old

const at = (id) => document.getElementById(id);
const aside = at("job");
const main = at("main");
const picture = at("picture");
const alarm = at("alarm");
const dialog = at("sign-in");

const seen = { data: null, at: 0, now: 0, failed: "" }; // the last answer, when it came (page's clock), server's time
let openedFrom = null;

// ---- what the address says ----

function address() {
  return new URLSearchParams(location.hash.slice(1));
}

function go(changes) {
  const to = address();
  for (const [name, value] of Object.entries(changes)) value ? to.set(name, value) : to.delete(name);
  if (to.toString() !== address().toString()) location.hash = to.toString();
}

function chosen() {
  const [namespace, name, uid = ""] = (address().get("job") ?? "").split("/");
  return namespace && name ? { namespace, name, uid } : null;
}

function open(job) {
  openedFrom = document.activeElement;
  go({ job: identity(job) });
}

function close() {
  go({ job: "" });
  const back = openedFrom?.isConnected ? openedFrom : at("jobs-section");
  back.focus({ preventScroll: true });
}

window.addEventListener("hashchange", () => {
  const job = chosen();
  showAside(job !== null);
  if (job === null) aside.replaceChildren();
  else aside.focus({ preventScroll: false });
  at("namespace").value = address().get("namespace") ?? "";
  pulse.soon();
});

// ---- one turn: ask, then draw ----

const pulse = new Pulse(async () => {
  const bearer = token.get();
  if (!bearer) return signIn("");
  const namespace = address().get("namespace") ?? "";
  try {
    const { data, now } = await ask(`v1/cluster${namespace ? `?namespace=${encodeURIComponent(namespace)}` : ""}`);
    if (token.get() !== bearer) return; // forgotten, or another one's, meanwhile
    Object.assign(seen, { data, now, at: performance.now(), failed: "" });
    draw();
    await drawChosen();
    sayAge();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (token.get() === bearer) refused(error, namespace);
  }
});

function refused(error, namespace) {
  if (error.status === 401) return signIn(error.message);
  if (error.status === 403 || error.status === 400) {
    const own = namespaceOf(token.get());
    if (error.status === 403 && !namespace && own) return go({ namespace: own }); // asks again, for that one
    return signIn(error.message);
  }
  seen.failed = error.message;
  sayAge();
  throw error; // later, then
}

async function drawChosen() {
  const job = chosen();
  if (job === null) return;
  const path = `v1/jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}${job.uid ? `?uid=${encodeURIComponent(job.uid)}` : ""}`;
  try {
    const { data, now } = await ask(path);
    if (identity(chosen() ?? {}).startsWith(`${job.namespace}/${job.name}/`)) drawJob(aside, data, now, close);
  } catch (error) {
    if (!(error instanceof Refused) || ![400, 403, 404].includes(error.status)) throw error;
    drawNoJob(aside, error.message, close);
  }
  showAside(true);
}

function showAside(shown) {
  aside.hidden = !shown;
  main.classList.toggle("with-job", shown);
}

// ---- drawing ----

const queue = queueTable(at("queue"), open);
const jobs = jobsTable(at("jobs"), open);
const find = at("find");

function draw() {
  const { data } = seen;
  const now = clockNow();
  main.hidden = false;
  const withCells = new Set(data.nodes.flatMap((node) => [...node.cells.map(([job]) => job), ...(node.devices ?? []).flatMap(([, , jobs]) => jobs)]));
  dress(data.jobs.filter((_, i) => withCells.has(i)).map(identity));
  chips(data);
  drawSums(at("sums"), data);
  at("no-nodes").hidden = data.nodes.length > 0;
  drawPicture(picture, data, open);
  const waiting = data.jobs.filter(waits).sort(inQueue);
  queue.update(waiting, { now, hidden: data.waiting - waiting.filter((job) => job.position !== null || job.reason === "NeverFits").length });
  text(at("queue-title"), waiting.length ? `Queue (${waiting.length})` : "Queue");
  drawJobs();
  drawHandOvers(at("hand-overs"), data, now, open);
  const names = [...new Set(data.jobs.map((job) => job.namespace))];
  sync(at("namespaces"), names, (name) => name, () => "", (name) => h("option", { value: name }));
  stillLit(document.body);
}

function drawJobs() {
  const sought = find.value.trim().toLowerCase();
  const running = seen.data.jobs.filter((job) => !waits(job));
  const found = running.filter((job) => `${job.namespace}/${job.name} ${job.state} ${job.reason} ${job.message}`.toLowerCase().includes(sought));
  jobs.update(found, { now: clockNow(), sought });
  text(at("jobs-title"), found.length === running.length ? `Jobs (${running.length})` : `Jobs (${found.length} of ${running.length})`);
}

function chips(data) {
  const words = [
    [`profile ${data.profile}`, data.elastic ? "shares follow speed" : "every job keeps its size"],
    data.observe ? ["observing only", "mode: observe; nothing is gated or held back"] : null,
    data.leading ? null : ["standing by", "another replica of Muster acts"],
  ].filter(Boolean);
  sync(at("chips"), words, ([chip]) => chip, ([, title]) => title, ([chip, title]) => h("span", { class: "chip", title }, chip));
}

/** The server's clock, carried on since its last answer. */
function clockNow() {
  return seen.now + (performance.now() - seen.at) / 1000;
}

function sayAge() {
  const since = (performance.now() - seen.at) / 1000;
  const old = seen.data !== null && since > OLD;
  text(at("age"), seen.data === null || dialog.open ? "" : `updated ${duration(since)} ago`);
  at("age").classList.toggle("old", old);
  document.body.classList.toggle("stale", old);
  const words = seen.failed ? `${seen.failed}. ${seen.data ? ` What you see is ${duration(Math.floor(since / 10) * 10)} old.` : ""}${pulse.stopped ? "" : " Trying again."}` : "";
  text(alarm, words);
  alarm.hidden = !words;
}

// ---- the token ----

function signIn(why) {
  pulse.stop();
  text(at("sign-in-error"), why);
  at("token").value = token.get();
  at("token-namespace").value = address().get("namespace") ?? "";
  if (!dialog.open) dialog.showModal();
  (why && token.get() ? at("token-namespace") : at("token")).focus();
  sayAge();
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  forget();
  token.set(at("token").value.trim());
  go({ namespace: at("token-namespace").value.trim() });
  dialog.close();
});

at("forget").addEventListener("click", () => {
  token.set("");
  forget();
  seen.data = null;
  main.hidden = true;
  at("token").value = "";
  at("token").focus();
});

dialog.addEventListener("close", () => {
  if (token.get()) return pulse.start();
  seen.failed = "No token yet, so there is nothing to show: choose Token";
  sayAge();
});
at("token-button").addEventListener("click", () => signIn(""));

at("scope").addEventListener("submit", (event) => {
  event.preventDefault();
  go({ namespace: at("namespace").value.trim() });
});
at("namespace").addEventListener("change", () => go({ namespace: at("namespace").value.trim() }));
find.addEventListener("input", () => seen.data && drawJobs());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !dialog.open && chosen()) close();
});

walkWithKeys(picture);
highlight(document.body, at("tip"));
at("namespace").value = address().get("namespace") ?? "";
showAside(chosen() !== null);
setInterval(() => document.visibilityState === "visible" && sayAge(), 1000);
pulse.start();
