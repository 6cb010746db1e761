// Two small charts as SVG: a job's share over time, and its speed by replicas.

import { s } from "./dom.js";
import { duration, number, plural } from "./words.js";

const WIDE = 420;
const HIGH = 150;
const EDGE = { left: 40, right: 10, top: 10, bottom: 24 };

/** Replicas over time as steps. points: [[Unix s, replicas], ...]; role: its min and max; now: Unix s. */
export function shareChart(points, role, now) {
  const steps = points.length ? points : [[now, role.bound]];
  const first = steps[0][0];
  const last = Math.max(now, steps.at(-1)[0]);
  const most = Math.max(role.max, ...steps.map(([, n]) => n), 1);
  const x = scale(first, last > first ? last : first + 1, EDGE.left, WIDE - EDGE.right);
  const y = scale(0, most, HIGH - EDGE.bottom, EDGE.top);
  let path = `M${x(first)},${y(steps[0][1])}`;
  for (const [at, count] of steps.slice(1)) path += `H${x(at)}V${y(count)}`;
  path += `H${x(last)}`;
  const words = steps.map(([at, count]) => `${plural(count, "replica")} ${duration(last - at)} ago`).join(", ");
  return s(
    "svg",
    { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img", "aria-label": `Share over time: ${words}` },
    ticks(most, true).map((n) => line(y(n), String(n))),
    role.min !== role.max ? [limit(y(role.min), `min ${role.min}`), limit(y(role.max), `max ${role.max}`)] : [],
    s("path", { class: "area", d: `${path}V${y(0)}H${x(first)}Z` }),
    s("path", { class: "line", d: path }),
    timeTicks(first, last).map((at) => s("text", { x: x(at), y: HIGH - 8, class: "tick", "text-anchor": "middle" }, `−${duration(last - at)}`)),
    s("text", { x: WIDE - EDGE.right, y: HIGH - 8, class: "tick", "text-anchor": "end" }, "now"),
  );
}

/** Speed by replicas: the estimate as a line, what was measured as points, where the job is now as a mark. */
export function speedChart(speeds, have) {
  const all = [...speeds.measured, ...speeds.estimated].filter(([, speed]) => speed !== null);
  const widest = Math.max(1, ...all.map(([n]) => n));
  const most = Math.max(1e-9, ...all.map(([, speed]) => speed));
  const x = scale(0, widest, EDGE.left, WIDE - EDGE.right - 6);
  const y = scale(0, most * 1.08, HIGH - EDGE.bottom, EDGE.top);
  const drawn = speeds.estimated.filter(([, speed]) => speed !== null);
  const path = drawn.map(([n, speed], i) => `${i ? "L" : "M"}${x(n)},${y(speed)}`).join("");
  const told = speeds.measured.map(([n, speed]) => `${plural(n, "replica")}: ${number(speed)}`).join(", ");
  return s(
    "svg",
    { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img", "aria-label": `Speed in ${speeds.unit}, measured: ${told || "nothing yet"}` },
    ticks(most).map((value) => line(y(value), number(value))),
    have ? s("line", { class: "here", x1: x(have), x2: x(have), y1: EDGE.top, y2: HIGH - EDGE.bottom }) : null,
    drawn.length > 1 ? s("path", { class: "line estimate", d: path }) : drawn.map(([n, speed]) => s("circle", { class: "estimate", cx: x(n), cy: y(speed), r: 3 })),
    speeds.measured.map(([n, speed, nodes]) =>
      s("circle", { class: "measured", cx: x(n), cy: y(speed), r: 4.5 }, s("title", {}, `${plural(n, "replica")} on ${plural(nodes, "node")}: ${number(speed)} ${speeds.unit}`)),
    ),
    ticks(widest, true).filter(Boolean).map((n) => s("text", { x: x(n), y: HIGH - 8, class: "tick", "text-anchor": "middle" }, String(n))),
  );
}

function scale(from, to, start, end) {
  return (value) => Math.round((start + ((value - from) / (to - from)) * (end - start)) * 10) / 10;
}

function line(at, words) {
  return s("g", {}, s("line", { class: "grid", x1: EDGE.left, x2: WIDE - EDGE.right, y1: at, y2: at }), s("text", { x: EDGE.left - 6, y: at + 4, class: "tick", "text-anchor": "end" }, words));
}

function limit(at, words) {
  return s("g", {}, s("line", { class: "limit", x1: EDGE.left, x2: WIDE - EDGE.right, y1: at, y2: at }), s("text", { x: EDGE.left + 5, y: at + 12, class: "tick" }, words));
}

/** About four round numbers from 0 to `most`. */
function ticks(most, whole = false) {
  const rough = most / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  if (whole || (most >= 4 && Number.isInteger(most))) step = Math.max(1, Math.round(step));
  const found = [];
  for (let value = 0; value <= most * 1.0001; value += step) found.push(value);
  return found;
}

function timeTicks(first, last) {
  const span = last - first;
  return span > 10 ? [first + span * 0.05, first + span / 3, first + (span * 2) / 3] : [];
}
