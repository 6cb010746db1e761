// Numbers and times in words, as the other commands of Muster say them.

/** "45s", "12m", "3h20m", "2d4h". */
export function duration(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 120) return `${s}s`;
  if (s < 3 * 3600) return `${Math.floor(s / 60)}m`;
  const minutes = Math.floor((s % 3600) / 60);
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h${minutes ? `${minutes}m` : ""}`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

/** "1 GPU", "3 GPUs". */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** Three significant digits, no exponent. */
export function number(value) {
  if (value === null || value === undefined) return "unknown";
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

/** Unix seconds of an RFC 3339 time, null where there is none. */
export function seconds(time) {
  return time ? Date.parse(time) / 1000 : null;
}

/** "in 12m", "any moment now" where it is past. */
export function until(time, now) {
  const at = seconds(time);
  if (at === null) return "";
  return at - now < 1 ? "any moment now" : `in ${duration(at - now)}`;
}

/** "3m ago". */
export function ago(time, now) {
  const at = seconds(time);
  return at === null ? "" : `${duration(now - at)} ago`;
}

/** "43 %". */
export function percent(part) {
  return part === null || part === undefined ? "" : `${Math.floor(part * 100)} %`;
}

/** Local date and time, for titles. */
export function clock(time) {
  return time ? new Date(time).toLocaleString() : "";
}

const KINDS = /^(pod|job|jobset|trainjob|pytorchjob|raycluster|statefulset|deployment|leaderworkerset)-(?=.)/;

/** At most three letters that stand in a cell: "t12" of "job-train-12", "lla" of "job-llama". */
export function tag(name) {
  const own = name.replace(KINDS, "");
  const digits = /(\d{1,2})$/.exec(own);
  if (digits && digits.index > 0) return own[0] + digits[1];
  return [...own].slice(0, 3).join("");
}

export function identity(job) {
  return `${job.namespace}/${job.name}/${job.uid}`;
}
