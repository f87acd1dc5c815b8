// Figures as people read them, and elements made of text that guests may have written: nothing here parses HTML.

export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(100 * share)}\u00a0%`;
}

export function size(bytes) {
  for (const [unit, one] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20]]) {
    if (bytes >= one) return `${Number((bytes / one).toPrecision(3))} ${unit}`;
  }
  return bytes ? `${Math.ceil(bytes / 1024)} KiB` : "0";
}

export function length(us) {
  if (us >= 1e6) return `${(us / 1e6).toFixed(1)} s`;
  return us >= 1000 ? `${(us / 1000).toFixed(us >= 10000 ? 0 : 1)} ms` : `${Math.round(us)} µs`;
}

export function age(seconds) {
  for (const [unit, one] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= one) return `${Math.floor(seconds / one)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// What has not changed is left alone: a screen reader and a selection would notice.
export function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
