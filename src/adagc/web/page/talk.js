// What all pages share: talking to the server, saying what went wrong, who sits here, time on screen.

export const byId = (id) => document.getElementById(id);
export const number = new Intl.NumberFormat("en");

export const RETRY = 2000; // milliseconds until a request that failed is sent again
const CHANGED = 3500; // milliseconds for which a notice is shown

// -- asking the server -----------------------------------------------------------------------------

export class Refused extends Error {}

async function post(path, body) {
  const answer = await fetch(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 507 || answer.status >= 502) throw new Error(told.problem);
  throw new Refused(told.problem ?? "The server refused that.");
}

// A function that sends until the server has it: what is not acknowledged is not saved, and the page
// says so. If the server refuses, somebody reads why, and gets what is before them anew.
export function asking(command, who) {
  return async (path, body = {}) => {
    for (;;) {
      try {
        const told = await post(path, { name: who(), ...body });
        hideProblem();
        return told;
      } catch (error) {
        if (error instanceof Refused) {
          showProblem(error.message, "Load again");
          await pressed(byId("again"));
          hideProblem();
          return post("look", { name: who() });
        }
        const text = error instanceof TypeError
          ? `The server does not answer, so this is not saved yet. Is adagc ${command} still running?`
          : error.message || "The server does not answer, so this is not saved yet.";
        showProblem(text, "Try again");
        await Promise.race([pressed(byId("again")), pause(RETRY)]);
      }
    }
  };
}

// What does not change, asked for until the server gives it.
export async function project() {
  for (;;) {
    try {
      const answer = await fetch("api/project");
      if (!answer.ok) throw new Refused((await answer.json()).problem);
      const told = await answer.json();
      hideProblem();
      return told;
    } catch (error) {
      showProblem(error instanceof Refused ? error.message : "The server does not answer.", "Try again");
      await Promise.race([pressed(byId("again")), pause(RETRY)]);
    }
  }
}

export const pause = (time) => new Promise((done) => setTimeout(done, time));
const pressed = (button) => new Promise((done) => button.addEventListener("click", done, { once: true }));
export const invented = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function showProblem(text, action) {
  byId("problem").textContent = text;
  byId("again").textContent = action;
  byId("banner").hidden = false;
}
const hideProblem = () => { byId("banner").hidden = true; };

let hiding;
export function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { byId("notice").hidden = true; }, CHANGED);
}

// Shows a dialog from its beginning: its button at the end has the focus.
export function unfold(id) {
  byId(id).showModal();
  byId(id).scrollTop = 0;
}

// -- time on screen, without the time in which the page is hidden ---------------------------------

let since = 0;
let spent = 0;
export const startClock = () => { spent = 0; since = performance.now(); };
export const seconds = () => Math.min((spent + (document.hidden ? 0 : performance.now() - since)) / 1000, 1e6);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) spent += performance.now() - since;
  else since = performance.now();
});

// -- what the browser remembers, and who sits before it --------------------------------------------

export function remembered(what) {
  try { return localStorage.getItem(`adagc-annotate-${what}`); } catch { return null; }
}
export function remember(what, value) {
  try { localStorage.setItem(`adagc-annotate-${what}`, value); } catch { /* only for this visit */ }
}

let name = remembered("name") ?? "";
export const who = () => name;

export function welcome() {
  byId("name").value = name;
  byId("welcome").showModal();
  byId("name").select();
}

// Asks for a name if there is none; begins with it, and again when it is changed.
export function introduce(begin) {
  let begun = false;
  const start = () => {
    begun = true;
    byId("known-as").textContent = `You are ${name}.`;
    return begin();
  };
  byId("welcome").addEventListener("cancel", (event) => { if (!name) event.preventDefault(); });
  byId("welcome").addEventListener("close", () => {
    const given = byId("name").value.trim();
    if (!given) return name || welcome();
    if (given === name && begun) return undefined;
    name = given;
    remember("name", name);
    return start();
  });
  return name ? start() : welcome();
}

// -- words -----------------------------------------------------------------------------------------

export function duration(hours) {
  const minutes = Math.ceil(hours * 60);
  if (minutes < 60) return `${minutes} min`;
  return hours < 10 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${number.format(Math.round(hours))} h`;
}

export function key(text) {
  const shown = document.createElement("kbd");
  shown.textContent = text;
  shown.setAttribute("aria-hidden", "true");
  return shown;
}
