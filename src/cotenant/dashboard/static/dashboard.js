// Loads the last hour, then follows the stream of frames.

import { confirmKill, steer } from "./actions.js";
import { Gpus } from "./gpus.js";
import { History } from "./history.js";
import { Jobs } from "./jobs.js";
import { put } from "./text.js";

const get = (id) => document.getElementById(id);
const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

// The cookie is there: the token need not stand in the address, in bookmarks and in the history.
history.replaceState(null, "", location.pathname);

const past = new History();
const gpus = new Gpus(get("gpus"));
let jobs = null;
let frame = null;

function link(state, text) {
  get("link").dataset.state = state;
  put(get("link"), text);
}

function draw() {
  if (!frame) return;
  get("problem").hidden = !frame.problem;
  if (frame.problem) {
    put(get("problem"), [frame.problem.message, frame.problem.hint].filter(Boolean).join(": "));
    return;
  }
  jobs ??= new Jobs(get("jobs"), get("empty"), frame.readonly, steer, confirmKill);
  const seconds = Number(document.querySelector("input[name=range]:checked").value);
  put(get("host"), `on ${frame.host}`);
  put(get("summary"), `${counted(frame.jobs.length, "job")} on ${counted(frame.gpus.length, "GPU")} · policy ${frame.policy}`);
  gpus.show(frame.gpus, past, seconds);
  jobs.show(frame.jobs, past, seconds, get("sort").value, get("filter").value);
  const broken = frame.jobs.filter((job) => job.promise_kept === false).length;
  document.title = broken ? `(${counted(broken, "promise")} broken) Cotenant` : "Cotenant";
}

async function load() {
  const answer = await fetch("/api/history");
  if (answer.status === 401) {
    link("lost", "no access: open the printed address again");
    return false;
  }
  past.load(await answer.json());
  return true;
}

function follow() {
  const stream = new EventSource("/api/stream");
  let isGap = false;
  stream.onopen = () => {
    link("live", frame?.readonly ? "live, read only" : "live");
    if (isGap) load().catch(() => {});
    isGap = false;
  };
  stream.onmessage = (event) => {
    frame = JSON.parse(event.data);
    if (frame.newest) past.add(frame.newest);
    link("live", frame.readonly ? "live, read only" : "live");
    draw();
  };
  stream.onerror = () => {
    isGap = true;
    link("lost", "connection lost");
    // A browser gives up where the answer is an error: the dashboard may have been started anew.
    if (stream.readyState === EventSource.CLOSED) setTimeout(start, 3000);
  };
}

async function start() {
  try {
    if (await load()) follow();
  } catch {
    link("lost", "connection lost");
    setTimeout(start, 3000);
  }
}

for (const id of ["sort", "filter"]) get(id).addEventListener("input", draw);
get("ranges").addEventListener("change", draw);
start();
