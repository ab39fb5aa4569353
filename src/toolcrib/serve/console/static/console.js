// What pages do beyond HTML: local times, copying, and a warning before a page with typed text is left.
"use strict";

const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = format.format(moment);
    time.dataset.local = "";
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy";
  }
});

// A call that runs is cancelled by ending its request.
document.addEventListener("click", (event) => {
  if (!event.target.closest("button[data-abort]")) return;
  for (const button of document.querySelectorAll("#run-fields, #run-json")) button.dispatchEvent(new Event("htmx:abort"));
  document.getElementById("run").textContent = "Cancelled.";
});

document.addEventListener("htmx:after:swap", () => showTimes(document));
showTimes(document);
for (const button of document.querySelectorAll("button[data-copy][hidden]")) button.hidden = false;
