// Which look a job has: a colour of Okabe and Ito's palette, which the colour-blind tell apart, and a pattern.
// The look follows from the job's name, so it is the same for everybody and after a reload; two jobs that are seen
// together get different ones while there are enough.

const COLOURS = 7;
const PATTERNS = 4;
const LOOKS = COLOURS * PATTERNS;

const looks = new Map();

/** Classes of each job's look. Jobs that went give theirs back. */
export function dress(identities) {
  const here = new Set(identities);
  for (const known of looks.keys()) if (!here.has(known)) looks.delete(known);
  const taken = new Set(looks.values());
  for (const identity of identities) {
    if (looks.has(identity)) continue;
    let look = hash(identity) % LOOKS;
    for (let tries = 0; taken.has(look) && tries < LOOKS; tries++) look = (look + 5) % LOOKS; // 5: prime to 28
    looks.set(identity, look);
    taken.add(look);
  }
}

/** "c3 p1"; "waits" of a job that has no place: it has a colour when it has GPUs. */
export function look(identity) {
  const own = looks.get(identity);
  if (own === undefined) return "waits";
  return `c${own % COLOURS} p${Math.floor(own / COLOURS) % PATTERNS}`;
}

function hash(words) { // FNV-1a
  let value = 0x811c9dc5;
  for (let i = 0; i < words.length; i++) value = Math.imul(value ^ words.charCodeAt(i), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}
