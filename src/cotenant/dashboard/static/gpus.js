// A card for each GPU: what each class used of it over time, one on top of the other.
/* global uPlot */

import { element, percent, put, size } from "./text.js";

export const CLASSES = ["production", "standard", "opportunistic"];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function translucent(hex, alpha) {
  return hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
}

// Sums from the bottom: [production, production + standard, all three].
function stacked(shares) {
  const sums = [];
  shares.forEach((values, at) => {
    sums.push(values.map((one, i) => (one === null ? null : one + (at ? sums[at - 1][i] ?? 0 : 0))));
  });
  return sums;
}

class Card {
  constructor(gpu) {
    this.number = gpu.gpu;
    this.total = element("span", { class: "total" });
    this.facts = element("p", { class: "facts" });
    this.chart = element("div", { class: "chart", role: "img" });
    this.shares = CLASSES.map((name) => element("b"));
    const legend = CLASSES.map((name, i) => element("li", { class: name }, `${name} `, this.shares[i]));
    this.root = element(
      "article",
      { class: "gpu", "aria-label": `GPU ${gpu.gpu}` },
      element("div", { class: "head" }, element("h3", { title: gpu.uuid }, `GPU ${gpu.gpu}`), this.total, this.facts),
      this.chart,
      element("ul", { class: "legend" }, ...legend),
    );
  }

  draw(data) {
    if (this.plot) {
      this.plot.setData(data);
      return;
    }
    const text = colour("muted");
    const grid = { stroke: colour("grid"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const series = CLASSES.map((name) => ({
      label: name, stroke: colour(name), width: 1, points: { show: false }, spanGaps: false,
    }));
    series[0].fill = translucent(colour(CLASSES[0]), 0.55);
    const options = {
      ...this.extent(),
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: true }, y: { range: [0, 1] } },
      series: [{}, ...series],
      bands: [
        { series: [2, 1], fill: translucent(colour(CLASSES[1]), 0.5) },
        { series: [3, 2], fill: translucent(colour(CLASSES[2]), 0.5) },
      ],
      axes: [
        { stroke: text, font, grid: { show: false }, ticks: { show: false }, size: 26, space: 70,
          values: [[60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
        { stroke: text, font, grid, ticks: { show: false }, size: 46,
          splits: [0, 0.25, 0.5, 0.75, 1], values: (_, all) => all.map((one) => `${100 * one}%`) },
      ],
    };
    this.plot = new uPlot(options, data, this.chart);
  }

  extent() {
    return { width: Math.max(this.chart.clientWidth, 200), height: innerWidth < 900 ? 150 : 190 };
  }

  show(gpu, history, seconds, now) {
    put(this.total, percent(gpu.gpu_share));
    CLASSES.forEach((name, i) => put(this.shares[i], percent(gpu.class_shares[name])));
    this.tellFacts(gpu);
    const spoken = CLASSES.map((name) => `${name} ${percent(gpu.class_shares[name])}`).join(", ");
    this.chart.setAttribute("aria-label", `GPU ${gpu.gpu} by class over time; now ${spoken}`);
    const shares = CLASSES.map((name) => history.last(`gpu/${gpu.gpu}/${name}`, seconds));
    this.draw([history.times(seconds, now), ...stacked(shares)]);
  }

  tellFacts(gpu) {
    const facts = [];
    const of = (most, unit) => (most ? ` of ${Math.round(most)}` : "") + ` ${unit}`;
    if (gpu.clock_mhz) facts.push(Math.round(gpu.clock_mhz) + of(gpu.highest_mhz, "MHz"));
    if (gpu.power_w) facts.push(Math.round(gpu.power_w) + of(gpu.power_limit_w, "W"));
    facts.push(`${size(gpu.memory_bytes)} allocated`);
    if (gpu.host_bytes) facts.push(`${size(gpu.host_bytes)} evicted to the host`);
    if (gpu.outsiders) facts.push(`processes outside Cotenant: ${gpu.outsiders}`);
    const slowed = gpu.slowed_by?.length ? `slowed by ${gpu.slowed_by.join(", ")}` : "";
    const text = facts.join("  ·  ");
    if (this.facts.dataset.told === text + slowed) return;
    this.facts.dataset.told = text + slowed;
    this.facts.replaceChildren(text, ...(slowed ? ["  ·  ", element("span", { class: "slowed" }, slowed)] : []));
  }

  resize() {
    this.plot?.setSize(this.extent());
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }
}

export class Gpus {
  constructor(root) {
    this.root = root;
    this.cards = new Map();
    addEventListener("resize", () => this.cards.forEach((card) => card.resize()));
    // A canvas does not follow a change of the style sheet's colours.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      this.cards.forEach((card) => card.forget()),
    );
  }

  show(gpus, history, seconds) {
    const now = Date.now() / 1000;
    const before = this.cards.size;
    for (const [number, card] of this.cards) {
      if (!gpus.some((gpu) => gpu.gpu === number)) {
        card.forget();
        card.root.remove();
        this.cards.delete(number);
      }
    }
    for (const gpu of gpus) {
      if (!this.cards.has(gpu.gpu)) {
        const card = new Card(gpu);
        this.cards.set(gpu.gpu, card);
        this.root.append(card.root);
      }
    }
    for (const gpu of gpus) this.cards.get(gpu.gpu).show(gpu, history, seconds, now);
    if (before !== this.cards.size) this.cards.forEach((card) => card.resize());
  }
}
