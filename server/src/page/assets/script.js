// Adds conveniences to the pages: keys, buttons that copy, local times. Everything
// works without this script.
"use strict";

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);

// Shows exact times in the time zone of the browser.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
for (const time of all("time[datetime]")) {
  const moment = new Date(time.dateTime);
  if (Number.isNaN(moment.getTime())) continue;
  if (time.classList.contains("exact")) time.textContent = exact.format(moment);
  else time.title = exact.format(moment);
}

function element(name, text, ...inside) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...inside);
  return made;
}

function button(text) {
  const made = element("button", text);
  made.type = "button";
  return made;
}

// Adds a button to ids and commands that copies them.
if (navigator.clipboard) {
  const said = element("p", "");
  said.className = "unseen";
  said.setAttribute("aria-live", "polite");
  document.body.append(said);
  for (const code of all("[data-copy]")) {
    const copy = button("Copy");
    copy.className = "copy";
    copy.setAttribute("aria-label", `Copy ${code.textContent}`);
    copy.addEventListener("click", async () => {
      const done = await navigator.clipboard.writeText(code.textContent).then(() => true, () => false);
      copy.textContent = said.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => (copy.textContent = "Copy", said.textContent = ""), 2000);
    });
    code.after(copy);
  }
}

// Keyboard navigation.
const rows = all("[data-list] [data-go]").map((link) => link.closest("tr, li"));
let here = -1;

function go(to) {
  if (!rows.length) return;
  rows[here]?.classList.remove("here");
  here = Math.max(0, Math.min(rows.length - 1, to));
  rows[here].classList.add("here");
  const link = rows[here].querySelector("[data-go]");
  link.focus({ preventScroll: true });
  rows[here].scrollIntoView({ block: "nearest" });
}

// The name of the setting that turns off keys without Ctrl or Alt. The browser stores
// it. The key that shows the help always works, so that the others can be turned on.
const OFF = "snap-keys-off";

function areOff() {
  try {
    return localStorage.getItem(OFF) !== null;
  } catch {
    return false;
  }
}

function turn(on) {
  try {
    on ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "");
  } catch {
    // If the browser stores nothing, the keys stay on.
  }
}

function choice() {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = !areOff();
  box.addEventListener("change", () => turn(box.checked));
  return element("label", "", box, "Use these shortcuts");
}

function help() {
  let dialog = one("dialog");
  if (!dialog) {
    const keys = [
      ["/", "search by name"],
      ["j  k", "next and previous in a list"],
      ["Enter", "open it"],
      ["u", "the folder above"],
      ["[  ]", "page before and after"],
      ["?", "these shortcuts"],
    ];
    const list = element("dl", "");
    for (const [key, what] of keys) {
      const term = element("dt", "");
      for (const part of key.split("  ")) term.append(element("kbd", part), " ");
      list.append(term, element("dd", what));
    }
    const close = element("button", "Close");
    close.className = "button";
    const form = element("form", "", close);
    form.method = "dialog";
    dialog = element("dialog", "", element("h2", "Keyboard shortcuts"), list, choice(), form);
    dialog.setAttribute("aria-label", "Keys");
    document.body.append(dialog);
  }
  dialog.open ? dialog.close() : dialog.showModal();
}

const keys = {
  "/": () => one("#q")?.focus(),
  j: () => go(here + 1),
  k: () => go(here - 1),
  u: () => (one("tr.up a") ?? all(".trail a").at(-1))?.click(),
  "[": () => one("a[rel=prev]")?.click(),
  "]": () => one("a[rel=next]")?.click(),
  "?": help,
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("#q")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (areOff() && event.key !== "?") return;
  if (event.target.matches("input, select, textarea") || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

for (const hint of all(".keys")) {
  hint.hidden = false;
  hint.addEventListener("click", help);
}
