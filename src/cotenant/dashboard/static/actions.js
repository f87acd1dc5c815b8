// What the buttons ask of the server, and its answers.

import { element } from "./text.js";

const NOTICE_SECONDS = 12;

export function notice(text, isBad = false) {
  const shown = element("div", { class: isBad ? "notice bad" : "notice" }, text);
  const all = document.getElementById("notices");
  all.append(shown);
  while (all.children.length > 4) all.firstChild.remove();
  setTimeout(() => shown.remove(), NOTICE_SECONDS * 1000);
}

export async function steer(job, action, body, control) {
  if (control) control.disabled = true;
  try {
    const answer = await fetch(`/api/jobs/${encodeURIComponent(job.key)}/${action}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const told = answer.headers.get("Content-Type")?.startsWith("application/json") ? await answer.json() : {};
    if (answer.ok) notice(told.said.join("\n") || "done");
    else notice([told.error ?? `refused: ${answer.status}`, told.hint].filter(Boolean).join("\n"), true);
  } catch {
    notice("the dashboard does not answer", true);
  }
  if (control) control.disabled = false;
}

// Nothing is sent unless one of the two signals was chosen.
export function confirmKill(job) {
  const dialog = document.getElementById("kill");
  document.getElementById("kill-title").textContent = `Kill ${job.job}?`;
  document
    .getElementById("kill-processes")
    .replaceChildren(...job.tenants.map((one) => element("li", {}, `${one.pid} (${one.program}) of ${one.user}`)));
  const processes = job.tenants.map((one) => [one.pid, one.started]);
  dialog.returnValue = "";
  dialog.onclose = () => {
    if (dialog.returnValue) steer(job, "kill", { signal: dialog.returnValue, processes });
  };
  dialog.showModal();
}
