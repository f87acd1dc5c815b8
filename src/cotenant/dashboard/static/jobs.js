// The table of jobs. A row lives as long as its job and is changed in place, so that the focus stays where it is.

import { CLASSES } from "./gpus.js";
import { age, element, length, percent, put, size } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const COUNTS = ["preemptions", "kernels", "graphs", "copies", "gates", "escaped"];
const MOVED = ["evicting", "evicted", "restoring"];

const SORTS = {
  gpu: (job) => [job.gpus[0] ?? 99, rank(job), job.pids[0]],
  share: (job) => [-(job.gpu_share ?? 0)],
  memory: (job) => [-(job.memory_bytes + job.host_bytes)],
  class: (job) => [rank(job)],
  job: (job) => [job.job.toLowerCase()],
};

const rank = (job) => (job.class ? CLASSES.indexOf(job.class) : CLASSES.length);

function compare(one, other) {
  for (let i = 0; i < one.length; i++) {
    if (one[i] < other[i]) return -1;
    if (one[i] > other[i]) return 1;
  }
  return 0;
}

export function ordered(jobs, sort, wanted) {
  const text = wanted.trim().toLowerCase();
  const found = jobs.filter((job) =>
    [job.job, job.user, job.class ?? "", job.state, ...job.pids.map(String), ...job.tenants.map((one) => one.program)].some(
      (one) => one.toLowerCase().includes(text),
    ) || (text && job.run_id.startsWith(text)),
  );
  const key = (job) => [...SORTS[sort](job), ...SORTS.gpu(job)];
  return found.sort((a, b) => compare(key(a), key(b)));
}

class Sparkline {
  constructor() {
    this.root = document.createElementNS(SVG, "svg");
    this.root.setAttribute("class", "spark");
    this.root.setAttribute("viewBox", "0 0 100 30");
    this.root.setAttribute("preserveAspectRatio", "none");
    this.root.setAttribute("aria-hidden", "true");
    [this.area, this.edge] = ["area", "edge"].map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      this.root.append(path);
      return path;
    });
  }

  show(values) {
    const y = (one) => (29 - 28 * Math.min(one, 1)).toFixed(1);
    const points = values.flatMap((one, i) =>
      one === null ? [] : [[((100 * i) / Math.max(values.length - 1, 1)).toFixed(1), y(one)]],
    );
    const line = points.map(([x, height], i) => `${i ? "L" : "M"}${x} ${height}`).join("");
    this.edge.setAttribute("d", line);
    this.area.setAttribute("d", points.length ? `${line}L${points.at(-1)[0]} 29.5L${points[0][0]} 29.5Z` : "");
  }
}

class Row {
  constructor(job, table) {
    this.table = table;
    this.key = job.key;
    this.text = element("span", { class: "text" });
    this.name = element("button", { class: "name", type: "button", "aria-expanded": "false" }, this.text);
    this.name.addEventListener("click", () => this.toggle());
    this.who = element("div", { class: "who" });
    this.class = this.classControl();
    this.state = element("span", { class: "state" });
    this.share = element("span", { class: "number" });
    this.spark = new Sparkline();
    this.promise = element("span", { class: "chip" });
    this.equals = element("div", { class: "sub" });
    this.memoryText = element("span");
    this.memoryUsed = element("i");
    this.memoryHost = element("i", { class: "host" });
    this.meter = element("div", { class: "meter", role: "img" }, this.memoryUsed, this.memoryHost);
    this.pause = element("button", { class: "act", type: "button" });
    this.pause.addEventListener("click", () => this.table.steer(this.job, this.isPaused() ? "resume" : "pause", {}, this.pause));
    this.kill = element("button", { class: "act danger", type: "button" }, "Kill…");
    this.kill.addEventListener("click", () => this.table.confirmKill(this.job));
    const cell = (name, label, ...inside) =>
      element("td", { class: `cell-${name}`, role: "cell", "data-label": label }, ...inside);
    this.cells = {
      waits: cell("waits", "waits"),
      promise: cell("promise", "promise", this.promise, this.equals),
    };
    this.row = element(
      "tr",
      { class: "job", role: "row" },
      cell("name", "job", this.name, this.who),
      cell("class", "class", this.class),
      cell("state", "state", this.state),
      cell("use", "GPU", element("div", { class: "use" }, this.share, this.spark.root)),
      this.cells.promise,
      cell("memory", "memory", this.memoryText, this.meter),
      this.cells.waits,
      cell("steer", "actions", element("div", { class: "steering" }, this.pause, " ", this.kill)),
    );
    this.root = element("tbody", { role: "rowgroup" }, this.row);
  }

  classControl() {
    if (this.table.readonly) return element("span", { class: "class" });
    const select = element("select", { class: "class" });
    select.addEventListener("change", () => this.table.steer(this.job, "class", { class: select.value }, select));
    return select;
  }

  isPaused() {
    return this.job.tenants.some((one) => one.paused);
  }

  show(job, history, seconds) {
    this.job = job;
    put(this.text, job.job);
    this.name.title = job.job;
    const pids = job.pids.length > 2 ? `${job.pids.length} processes` : `PID ${job.pids.join(", ")}`;
    const where = job.gpus.length ? `GPU ${job.gpus.join(", ")}` : "no GPU yet";
    put(this.who, `${job.user} · ${pids} · ${where}`);
    this.showClass(job);
    this.state.className = `state state-${job.state}`;
    put(this.state, job.state);
    put(this.share, percent(job.gpu_share));
    this.row.className = `job ${job.class ?? ""}`;
    this.spark.show(history.last(`job/${job.key}`, seconds));
    this.showPromise(job);
    put(this.equals, job.share_asked === null ? "" : `got ${percent(job.share_got)}, due ${percent(job.share_asked)}`);
    this.showMemory(job);
    this.showWaits(job);
    this.kill.hidden = this.pause.hidden = this.table.readonly;
    put(this.pause, this.isPaused() ? "Resume" : "Pause");
    this.pause.setAttribute("aria-label", `${this.pause.textContent} ${job.job}`);
    this.kill.setAttribute("aria-label", `Kill ${job.job}`);
    if (this.details) this.showDetails();
  }

  showClass(job) {
    if (this.table.readonly) {
      put(this.class, job.class ?? "several");
      this.class.className = `class ${job.class ?? ""}`;
      return;
    }
    this.class.setAttribute("aria-label", `Class of ${job.job}`);
    const names = [...CLASSES, ...(job.class && CLASSES.includes(job.class) ? [] : [job.class ?? "several"])];
    if (this.class.options.length !== names.length)
      this.class.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (document.activeElement !== this.class && !this.class.disabled) this.class.value = job.class ?? "several";
    this.class.className = `class ${job.class ?? ""}`;
  }

  showPromise(job) {
    const kept = job.promise_kept;
    this.promise.hidden = !job.promise;
    this.promise.className = `chip ${kept === null ? "" : kept ? "good" : "bad"}`;
    const words = { "<": "at most", ">": "at least" };
    this.promise.title = job.promise?.startsWith("<")
      ? `It may be slowed down by ${job.promise.slice(1)} at most`
      : `It gets at least ${job.promise?.slice(1)} of the GPU`;
    const spoken = `${words[job.promise?.[0]] ?? ""} ${job.promise?.slice(1) ?? ""}`;
    const since = job.promise_seconds === null ? "" : ` for ${age(job.promise_seconds)}`;
    put(this.promise, job.promise ? `${spoken}${kept === null ? "" : kept ? " kept" : ` broken${since}`}` : "");
  }

  showMemory(job) {
    const limit = job.memory_limit ? ` of ${job.memory_limit.endsWith("%") ? job.memory_limit : size(job.memory_limit_bytes)}` : "";
    const host = job.host_bytes ? ` + ${size(job.host_bytes)} on the host` : "";
    const text = `${size(job.memory_bytes)}${limit}${host}`;
    put(this.memoryText, text);
    const whole = Math.max(job.memory_limit_bytes ?? this.table.mostMemory, job.memory_bytes + job.host_bytes, 1);
    this.memoryUsed.style.width = `${(100 * job.memory_bytes) / whole}%`;
    this.memoryHost.style.width = `${(100 * job.host_bytes) / whole}%`;
    this.meter.setAttribute("aria-label", `memory: ${text}`);
  }

  showWaits(job) {
    const parts = [];
    if (job.wait_p99_us !== null) parts.push(`${length(job.wait_p50_us)}, p99 ${length(job.wait_p99_us)}`);
    if (MOVED.includes(job.state)) parts.push("for GPU memory");
    const [first, ...others] = job.waits_for;
    const more = others.length ? `, and ${others.length} more` : "";
    const preempted = job.preemptions ? `preempted ${job.preemptions.toLocaleString("en")}×` : "";
    const told = [...parts, preempted, ...job.waits_for].join("\n");
    if (this.cells.waits.dataset.told === told) return;
    this.cells.waits.dataset.told = told;
    this.cells.waits.replaceChildren(
      ...parts.map((part) => element("div", {}, part)),
      ...(preempted ? [element("div", { class: "sub" }, preempted)] : []),
      ...(first ? [element("div", { class: "sub why", title: job.waits_for.join("\n") }, first + more)] : []),
    );
  }

  toggle() {
    const isOpen = !this.details;
    this.name.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      this.inside = element("td", { colspan: "8", role: "cell" });
      this.details = element("tr", { class: "details", role: "row" }, this.inside);
      this.root.append(this.details);
      this.showDetails();
    } else {
      this.details.remove();
      this.details = null;
    }
  }

  showDetails() {
    const job = this.job;
    const eldest = job.tenants[0];
    const facts = [
      ["command", eldest.command ?? "not visible from here", "command"],
      ["began", eldest.began_at ? eldest.began_at.replace("T", " ") : "not known"],
      ["run", job.run_id || "not started by cotenant run"],
      ["preemptions", job.preemptions.toLocaleString("en")],
      ["evictions", String(job.evictions)],
      ["escaped work", String(job.escaped)],
    ];
    if (eldest.refusal) facts.push(["not evicted", eldest.refusal]);
    for (const reason of job.waits_for) facts.push(["waits", reason]);
    const list = element("dl");
    for (const [name, text, kind] of facts)
      list.append(element("dt", {}, name), element("dd", { class: kind ?? "" }, text));
    const heads = ["PID", "program", "GPU", "state", "GPU %", "memory", "p50", "p99", ...COUNTS];
    const rows = job.tenants.flatMap((one) =>
      (one.gpus.length ? one.gpus : [null]).map((here) =>
        element("tr", {}, ...cellsOf(one, here).map((text) => element("td", {}, text))),
      ),
    );
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...heads.map((one) => element("th", { scope: "col" }, one)))),
      element("tbody", {}, ...rows),
    );
    this.inside.replaceChildren(list, element("div", { class: "scroll" }, table));
  }
}

function cellsOf(tenant, here) {
  const known = [String(tenant.pid), tenant.program];
  if (!here) return known;
  const counts = COUNTS.map((name) => here[name].toLocaleString("en"));
  const waits = [here.wait_p50_us, here.wait_p99_us].map((us) => (us === null ? "" : length(us)));
  return [...known, String(here.gpu), here.state, percent(here.gpu_share), size(here.memory_bytes), ...waits, ...counts];
}

export class Jobs {
  // `steer(job, action, body, control)` and `confirmKill(job)` are what the buttons do.
  constructor(table, empty, readonly, steer, confirmKill) {
    Object.assign(this, { table, empty, readonly, steer, confirmKill });
    this.rows = new Map();
    this.mostMemory = 1;
    table.classList.toggle("readonly", readonly);
  }

  show(jobs, history, seconds, sort, wanted) {
    this.mostMemory = Math.max(1, ...jobs.map((job) => job.memory_bytes + job.host_bytes));
    const shown = ordered(jobs, sort, wanted);
    for (const [key, row] of this.rows) {
      if (!shown.some((job) => job.key === key)) {
        row.root.remove();
        this.rows.delete(key);
      }
    }
    let before = this.table.tHead;
    for (const job of shown) {
      if (!this.rows.has(job.key)) this.rows.set(job.key, new Row(job, this));
      const row = this.rows.get(job.key);
      row.show(job, history, seconds);
      // Moving a row would take the focus away: only what is out of place moves.
      if (before.nextElementSibling !== row.root) before.after(row.root);
      before = row.root;
    }
    this.empty.hidden = jobs.length > 0;
    this.table.hidden = jobs.length === 0;
  }
}
