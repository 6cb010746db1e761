// Where data comes from: the service's own address, with the reader's token. Every 2 s while somebody looks, less and
// less often while it fails, and never twice at once.

const EVERY = 2000;
const LONGEST = 60000;
const PATIENCE = 10000;
const KEPT = "muster-token";
const KEPT_ANSWERS = 8;

export const token = {
  get: () => sessionStorage.getItem(KEPT) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEPT, value) : sessionStorage.removeItem(KEPT)),
};

/** The namespace of a service account's token, "" where it tells none. It is read for convenience, not believed. */
export function namespaceOf(words) {
  try {
    const part = words.split(".")[1].replace(/-/g, "+").replace(/_/g, "/");
    const found = /^system:serviceaccount:([a-z0-9-]+):/.exec(JSON.parse(atob(part)).sub ?? "");
    return found ? found[1] : "";
  } catch {
    return "";
  }
}

export class Refused extends Error {
  /** status: HTTP status, 0 = no answer. after: ms to wait before the next try, 0 = as usual. */
  constructor(status, message, after = 0) {
    super(message);
    this.status = status;
    this.after = after;
  }
}

const kept = new Map(); // by path: ETag and data; what did not change is not sent again

/** JSON of a path beside this page (so it works behind a prefix, too): {data, now (the server's clock, Unix s)}. Throws Refused. */
export async function ask(path) {
  const bearer = token.get();
  const headers = { Authorization: `Bearer ${bearer}`, Accept: "application/json" };
  const before = kept.get(path);
  if (before) headers["If-None-Match"] = before.tag;
  let answer;
  try {
    answer = await fetch(path, { headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(PATIENCE) });
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "Muster did not answer within 10 s" : "Muster can't be reached");
  }
  const date = Date.parse(answer.headers.get("Date") ?? "");
  const now = Number.isNaN(date) ? Date.now() / 1000 : date / 1000;
  if (answer.status === 304 && before) return { data: before.data, now };
  let data;
  try {
    data = await answer.json();
  } catch {
    throw new Refused(answer.status, `Muster answered ${answer.status} with something that is no JSON`);
  }
  if (!answer.ok) {
    const after = Number(answer.headers.get("Retry-After") ?? 0) * 1000;
    throw new Refused(answer.status, typeof data?.error === "string" ? data.error : `Muster answered ${answer.status}`, after);
  }
  if (kept.size >= KEPT_ANSWERS) kept.clear();
  if (token.get() === bearer) kept.set(path, { tag: answer.headers.get("ETag") ?? "", data });
  return { data, now };
}

/** What was kept belongs to the token before. */
export function forget() {
  kept.clear();
}

/** Calls `turn` again and again while the page is visible; it returns or throws (Refused: the next turn is later). */
export class Pulse {
  constructor(turn) {
    this.turn = turn;
    this.failures = 0;
    this.timer = 0;
    this.busy = false;
    this.again = false;
    this.stopped = true;
    document.addEventListener("visibilitychange", () => this.soon());
    window.addEventListener("online", () => this.soon());
  }

  /** A turn now, or right after the one that is under way. */
  soon() {
    if (this.stopped || document.visibilityState !== "visible") return clearTimeout(this.timer);
    if (this.busy) return void (this.again = true);
    clearTimeout(this.timer);
    void this.run();
  }

  start() {
    this.stopped = false;
    this.failures = 0;
    this.soon();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  async run() {
    this.busy = true;
    let after = EVERY;
    try {
      await this.turn();
      this.failures = 0;
    } catch (error) {
      if (!(error instanceof Refused)) console.error(error);
      this.failures += 1;
      const back = Math.min(LONGEST, EVERY * 2 ** this.failures);
      after = Math.max(error.after ?? 0, back * (0.75 + Math.random() / 2)); // not all readers in the same second
    } finally {
      this.busy = false;
    }
    if (this.again) after = 0;
    this.again = false;
    if (!this.stopped && document.visibilityState === "visible") this.timer = setTimeout(() => this.run(), after);
  }
}
