// What the page can do beyond being read: keys, copying, times of where one is.
// Everything works without.
"use strict";

document.documentElement.classList.add("scripted");

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);

// Exact times, in the zone of whoever looks.
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
for (const time of all("time[datetime]")) {
  const moment = new Date(time.dateTime);
  if (Number.isNaN(moment.getTime())) continue;
  if (time.classList.contains("exact")) time.textContent = exact.format(moment);
  else time.title = exact.format(moment);
}

// What is chosen is shown at once.
for (const form of all("form[data-submit]")) {
  form.addEventListener("change", () => form.requestSubmit());
}

// A click copies ids and commands.
if (navigator.clipboard) {
  for (const code of all("[data-copy]")) {
    code.title = "Click to copy";
    code.addEventListener("click", async () => {
      if (String(getSelection())) return;
      await navigator.clipboard.writeText(code.textContent);
      code.classList.add("copied");
      code.title = "Copied";
      setTimeout(() => {
        code.classList.remove("copied");
        code.title = "Click to copy";
      }, 1200);
    });
  }
}

// Keys.
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

function element(name, text, ...inside) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...inside);
  return made;
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
      ["?", "these keys"],
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
    dialog = element("dialog", "", element("h2", "Keys"), list, form);
    dialog.setAttribute("aria-label", "Keys");
    document.body.append(dialog);
  }
  dialog.open ? dialog.close() : dialog.showModal();
}

const keys = {
  "/": () => one("#q")?.focus(),
  j: () => go(here + 1),
  k: () => go(here - 1),
  u: () => one("tr.up a")?.click(),
  "[": () => one("a[rel=prev]")?.click(),
  "]": () => one("a[rel=next]")?.click(),
  "?": help,
};

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && event.target.matches("#q")) event.target.blur();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea") || !(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

for (const hint of all(".keys")) hint.hidden = false;
