// The page: shows what the server says, sends what people do. It decides nothing about the work.
import { Stage } from "./stage.js";

const byId = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const RETRY = 2000; // milliseconds until a request that failed is sent again
const CHANGED = 3500; // milliseconds for which a notice is shown

let project; // what does not change: classes, composites, options
let view; // what is before us
let name = remembered("name") ?? "";
let composite = 0;
let busy = true; // an answer is under way, or the image is not there yet
let seen = false; // the image of this view is on the screen
let marking = false; // the next key marks a class as not there
let marks = new Map(); // class number -> "present" or "absent", before the answer is sent
let around = false; // what lies around the image is on the screen, in place of it
let placeless = false; // images of this folder do not say where they lie
let focusing = null; // the button that had the focus, for those who choose with Tab and Enter
let listed = []; // class numbers of the buttons, in their order

// -- what people work with -----------------------------------------------------------------------

const stage = new Stage(byId("stage"), byId("frame"));
const pictures = new Map(); // "row/composite" -> a promise of a loaded picture

function picture(row, which, whole = false) {
  const key = `${row}/${which}/${whole}`;
  if (!pictures.has(key)) {
    const loaded = load(`api/picture/${row}/${which}${whole ? "?whole=true" : ""}`);
    loaded.catch(() => pictures.delete(key));
    pictures.set(key, loaded);
  }
  return pictures.get(key);
}

// What lies around an image: asked for by a key only, and made anew each time.
const surroundings = (row, which) => load(`api/context/${row}/${which}`);

async function load(address) {
  const answer = await fetch(address);
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(told.problem ?? ""), { broken: answer.status === 422 });
  }
  const image = new Image();
  image.alt = "";
  image.draggable = false;
  image.src = URL.createObjectURL(await answer.blob());
  try {
    await image.decode();
  } catch {
    throw Object.assign(new Error("This image cannot be shown. Skip it."), { broken: true });
  }
  return image;
}

function forget(keep) {
  for (const [key, loaded] of pictures) {
    if (keep.includes(Number(key.split("/")[0]))) continue;
    pictures.delete(key);
    loaded.then((image) => URL.revokeObjectURL(image.src), () => {});
  }
}

// -- time on screen, without the time in which the page is hidden ---------------------------------

let since = 0;
let spent = 0;
const startClock = () => { spent = 0; since = performance.now(); };
const seconds = () => (spent + (document.hidden ? 0 : performance.now() - since)) / 1000;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) spent += performance.now() - since;
  else since = performance.now();
});

// -- asking the server -----------------------------------------------------------------------------

class Refused extends Error {}

async function post(path, body) {
  const answer = await fetch(`api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ name, ...body }),
  });
  const told = await answer.json().catch(() => ({}));
  if (answer.ok) return told;
  if (answer.status === 507 || answer.status >= 502) throw new Error(told.problem);
  throw new Refused(told.problem ?? "The server refused that.");
}

// Sends until the server has it: what is not acknowledged is not saved, and the page says so.
async function ask(path, body = {}) {
  busy = true;
  enable();
  for (;;) {
    try {
      const told = await post(path, body);
      hideProblem();
      return told;
    } catch (error) {
      if (error instanceof Refused) {
        showProblem(error.message, "Load again");
        await pressed(byId("again"));
        hideProblem();
        return post("look", {});
      }
      const text = error instanceof TypeError
        ? "The server does not answer, so this is not saved yet. Is adagc annotate still running?"
        : error.message || "The server does not answer, so this is not saved yet.";
      showProblem(text, "Try again");
      await Promise.race([pressed(byId("again")), pause(RETRY)]);
    }
  }
}

const pause = (time) => new Promise((done) => setTimeout(done, time));
const pressed = (button) => new Promise((done) => button.addEventListener("click", done, { once: true }));
const invented = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

function showProblem(text, action) {
  byId("problem").textContent = text;
  byId("again").textContent = action;
  byId("banner").hidden = false;
}
const hideProblem = () => { byId("banner").hidden = true; };

// -- showing ---------------------------------------------------------------------------------------

async function show(next) {
  const same = view && next.image === view.image;
  view = next;
  marks = new Map();
  marking = false;
  if (!same) seen = false;
  busy = true;
  showProgress();
  showCandidates();
  if (view.notice) notice(view.notice);
  byId("bias").textContent = view.bias;
  byId("bias").hidden = !view.bias;
  byId("end").hidden = view.image !== null;
  if (view.image === null) {
    leaveSurroundings();
    stage.clear();
    byId("where").hidden = true;
    byId("around").hidden = true;
    byId("broken").hidden = true;
    showEnd();
    busy = false;
    enable();
    return;
  }
  await showPicture(!same);
  forget([view.image, view.upcoming]);
  if (view.upcoming !== null) picture(view.upcoming, composite).catch(() => {});
}

async function showPicture(fresh) {
  const row = view.image;
  leaveSurroundings();
  const which = composite;
  let image = null;
  try {
    image = await picture(row, which);
    byId("broken").hidden = true;
  } catch (error) {
    if (row !== view.image || which !== composite) return;
    byId("broken").textContent = error.broken ? error.message : "The picture did not arrive. Skip it, or load the page again.";
    byId("broken").hidden = false;
  }
  if (row !== view.image || which !== composite) return; // something else came meanwhile
  if (image) stage.show(image, fresh, Math.max(image.naturalWidth, image.naturalHeight) >= project.longest ? () => picture(row, which, true) : null);
  else stage.clear();
  seen = image !== null;
  busy = false;
  if (fresh) startClock();
  enable();
  if (fresh) showPlace(row);
  document.body.dataset.shown = String(row);
  if (fresh) speak();
}

async function showSurroundings() {
  if (byId("around").hidden || busy) return;
  if (around) {
    await showPicture(false);
    return;
  }
  const row = view.image;
  const image = await surroundings(row, composite).catch(() => null);
  if (row !== view.image || busy) return;
  if (!image) {
    notice("What lies around this image cannot be shown.");
    return;
  }
  around = true;
  byId("around").setAttribute("aria-pressed", "true");
  stage.show(image, true, null);
  byId("spoken").textContent = "What lies around the image, which is outlined in the middle.";
}

function leaveSurroundings() {
  if (!around) return;
  around = false;
  stage.reset();
  byId("around").setAttribute("aria-pressed", "false");
}

async function showPlace(row, again = false) {
  byId("where").hidden = true;
  byId("around").hidden = true;
  const told = placeless ? {} : await fetch(`api/place/${row}`).then((answer) => answer.json()).catch(() => ({}));
  if (row !== view.image || told.latitude === undefined) {
    placeless ||= told.latitude === undefined && row === view.image;
    return;
  }
  const degrees = (angle, [plus, minus]) => `${Math.abs(angle).toFixed(4)}° ${angle < 0 ? minus : plus}`;
  const wide = told.width >= 10000 ? `${Math.round(told.width / 1000)} km` : told.width >= 1000 ? `${(told.width / 1000).toFixed(1)} km` : `${Math.round(told.width)} m`;
  byId("where").textContent = `${degrees(told.latitude, "NS")}, ${degrees(told.longitude, "EW")} · ${wide} wide`;
  byId("where").hidden = false;
  byId("around").hidden = !told.around;
  // The server may not have come to the neighbours yet.
  if (!told.around && !again) setTimeout(() => { if (row === view.image) showPlace(row, true); }, RETRY);
  if (told.around) document.querySelector("#help .placed").hidden = false;
}

function showProgress() {
  byId("bar").max = Math.max(view.total, 1);
  byId("bar").value = view.finished;
  byId("done").textContent = `${number.format(view.finished)} of ${number.format(view.total)}`;
  let pace = "";
  if (view.rate) {
    pace = `· ${number.format(Math.round(view.rate))} per hour`;
    if (view.finished < view.total) pace += ` · ${duration((view.total - view.finished) / view.rate)} left`;
  }
  byId("pace").textContent = pace;
}

function duration(hours) {
  const minutes = Math.ceil(hours * 60);
  if (minutes < 60) return `${minutes} min`;
  return hours < 10 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${number.format(Math.round(hours))} h`;
}

function showCandidates() {
  const text = byId("search").value.trim().toLowerCase();
  listed = view.candidates.filter((each) => !text || project.classes[each].toLowerCase().includes(text));
  if (text) listed.sort((a, b) => starts(b, text) - starts(a, text));
  const focused = [...byId("candidates").querySelectorAll("button")].indexOf(document.activeElement);
  if (focused >= 0) focusing = focused;
  byId("candidates").replaceChildren(...listed.map(candidate));
  showMarks();
}
const starts = (each, text) => Number(project.classes[each].toLowerCase().startsWith(text));

function candidate(each, place) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.class = each;
  if (place < 9) {
    const key = document.createElement("kbd");
    key.textContent = place + 1;
    key.setAttribute("aria-hidden", "true");
    button.setAttribute("aria-keyshortcuts", place + 1);
    button.append(key);
  }
  const text = document.createElement("span");
  text.textContent = project.classes[each];
  button.append(text);
  button.addEventListener("click", (event) => {
    if (event.detail) button.blur(); // of a mouse or a finger: Enter means "done" then
    choose(place);
  });
  item.append(button);
  return item;
}

function showMarks() {
  for (const button of byId("candidates").querySelectorAll("button")) {
    const mark = marks.get(Number(button.dataset.class));
    if (project.several) button.setAttribute("aria-pressed", mark === "present");
    button.classList.toggle("out", mark === "absent");
  }
  const said = [...marks].map(([each, mark]) => (mark === "absent" ? "not " : "") + project.classes[each]);
  byId("marks").textContent = said.length ? `Marked: ${said.join(", ")}` : "";
  byId("marks").hidden = !said.length;
  byId("absent").setAttribute("aria-pressed", marking);
  enable();
}

function enable() {
  const answerable = !busy && view?.image !== null && seen;
  for (const button of byId("candidates").querySelectorAll("button")) button.disabled = !answerable;
  for (const id of ["none", "absent"]) byId(id).disabled = !answerable;
  byId("refresh").disabled = !answerable || view.offered >= project.classes.length && project.classes.length <= view.candidates.length;
  byId("confirm").disabled = !answerable || marks.size === 0;
  byId("skip").disabled = busy || view?.image === null;
  byId("undo").disabled = busy || !view?.undoable;
  if (answerable && focusing !== null) {
    byId("candidates").querySelectorAll("button")[focusing]?.focus({ focusVisible: false });
    focusing = null;
  }
}

function showEnd() {
  const all = view.finished >= view.total;
  byId("end-title").textContent = all ? "All images are labelled" : "No image is left for you";
  const skips = view.skipped ? ` You skipped ${number.format(view.skipped)}.` : "";
  byId("end-text").textContent = all
    ? `You gave ${number.format(view.mine)} answers. They are saved; you can close this page.`
    : `You gave ${number.format(view.mine)} answers, and all are saved.${skips} Others may still have images before them.`;
  byId("reopen").hidden = !view.skipped;
  byId("reopen").textContent = view.skipped === 1 ? "Show the image again that I skipped" : `Show the ${number.format(view.skipped)} images again that I skipped`;
  byId("look").hidden = all;
  byId("spoken").textContent = byId("end-title").textContent;
}

function speak() {
  const offers = listed.slice(0, 9).map((each, place) => `${place + 1} ${project.classes[each]}`).join(", ");
  byId("spoken").textContent = seen
    ? `${view.finished} of ${view.total} labelled. Next image. ${offers}`
    : byId("broken").textContent;
}

let hiding;
function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { byId("notice").hidden = true; }, CHANGED);
}

// -- what people do --------------------------------------------------------------------------------

function choose(place) {
  if (busy || !seen || view.image === null || place >= listed.length) return;
  const each = listed[place];
  if (marking || project.several) {
    const mark = marking ? "absent" : "present";
    if (marks.get(each) === mark) marks.delete(each);
    else marks.set(each, mark);
    marking = false;
    showMarks();
    return;
  }
  byId("candidates").querySelectorAll("button")[place].classList.add("pressed");
  marks.delete(each);
  send("choose", [each], project.everything ? null : view.candidates.indexOf(each));
}

const marked = (mark) => [...marks].filter(([, what]) => what === mark).map(([each]) => each);

function confirm() {
  if (busy || !seen || !marks.size) return;
  const present = marked("present");
  const key = present.length === 1 && !project.everything ? view.candidates.indexOf(present[0]) : -1;
  send(present.length ? "choose" : "absent", present, key < 0 ? null : key);
}

async function send(kind, present = [], key = null) {
  if (busy || view.image === null) return;
  const typing = document.activeElement === byId("search");
  const body = {
    image: view.image, kind, present, key, request: invented(),
    absent: kind === "choose" || kind === "absent" ? marked("absent") : [],
    seconds: Math.min(seconds(), 1e6),
  };
  const next = await ask("answer", body);
  byId("search").value = "";
  await show(next);
  if (typing) byId("search").focus();
}

const actions = {
  refresh: async () => { if (!byId("refresh").disabled) await show(await ask("refresh", { image: view.image })); speak(); },
  none: () => { if (seen) send("none"); },
  skip: () => send("skip"),
  undo: async () => { if (!byId("undo").disabled) await show(await ask("undo", { request: invented() })); },
  absent: () => { if (project.absent && !byId("absent").disabled) { marking = !marking; showMarks(); } },
  confirm,
  reopen: async () => show(await ask("reopen")),
  look: async () => show(await ask("look")),
  composite: () => switchComposite(),
  around: () => showSurroundings(),
  "zoom-in": () => stage.zoom(1.5),
  "zoom-out": () => stage.zoom(1 / 1.5),
  "zoom-fit": () => stage.fit(),
  "show-help": () => byId("help").showModal(),
  "show-counts": () => { showCounts(); byId("counts").showModal(); byId("counts").scrollTop = 0; },
  rename: () => { byId("help").close(); welcome(); },
};
for (const [id, act] of Object.entries(actions)) byId(id).addEventListener("click", act);

async function switchComposite() {
  if (project.composites.length < 2 || view.image === null) return;
  composite = (composite + 1) % project.composites.length;
  remember("composite", project.composites[composite].name);
  nameComposite();
  await showPicture(false);
  if (view.upcoming !== null) picture(view.upcoming, composite).catch(() => {});
}

function nameComposite() {
  const button = byId("composite");
  button.hidden = project.composites.length < 2;
  const key = document.createElement("kbd");
  key.textContent = "B";
  key.setAttribute("aria-hidden", "true");
  const { name: called, bands } = project.composites[composite];
  button.replaceChildren(key, ` ${called}`);
  button.title = `Bands: ${bands.join(", ")}`;
}

function showCounts() {
  const most = Math.max(1, ...view.counts);
  const row = (each, count) => {
    const line = document.createElement("tr");
    const cells = [document.createElement("th"), document.createElement("td"), document.createElement("td")];
    cells[0].scope = "row";
    cells[0].textContent = each;
    cells[1].textContent = number.format(count);
    const bar = document.createElement("progress");
    bar.max = most;
    bar.value = count;
    bar.setAttribute("aria-label", `Share of ${each}`);
    cells[2].append(bar);
    line.append(...cells);
    return line;
  };
  byId("per-class").replaceChildren(...project.classes.map((each, place) => row(each, view.counts[place])));
  byId("mine").textContent = `You gave ${number.format(view.mine)} of the answers.`;
}

const keys = { r: "refresh", n: "none", s: "skip", u: "undo", b: "composite", c: "around", a: "absent", enter: "confirm", "?": "show-help", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "zoom-fit" };
const moves = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

document.addEventListener("keydown", (event) => {
  // A key that is held down must not answer for the images that follow.
  if (event.repeat && !moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!project || document.querySelector("dialog[open]")) return;
  const digit = /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1];
  const typing = event.target === byId("search");
  if (typing && !typed(event, digit)) return;
  const onButton = event.target instanceof HTMLButtonElement;
  if (onButton && (event.key === "Enter" || event.key === " ")) return; // presses that button
  // By their place, since some keyboards have digits with Shift only. Without NumLock the digits of
  // the block move the image.
  if (digit && !moves[event.key]) choose(digit - 1);
  else if (event.key === "/" && project.everything) byId("search").focus();
  else if (moves[event.key]) stage.move(...moves[event.key]);
  else if (keys[event.key.toLowerCase()]) actions[keys[event.key.toLowerCase()]]();
  else return;
  event.preventDefault();
});

// In the search field letters are text; returns whether the key means something else there.
function typed(event, digit) {
  if (event.key === "Escape") byId("search").blur();
  else if (event.key === "Enter" && byId("search").value.trim()) choose(0);
  else return event.key === "Enter" || Boolean(digit && !/\d/.test(project.classes.join("")));
  event.preventDefault();
  return false;
}
byId("search").addEventListener("input", showCandidates);

// -- beginning -------------------------------------------------------------------------------------

function remembered(what) {
  try { return localStorage.getItem(`adagc-annotate-${what}`); } catch { return null; }
}
function remember(what, value) {
  try { localStorage.setItem(`adagc-annotate-${what}`, value); } catch { /* only for this visit */ }
}

function welcome() {
  byId("name").value = name;
  byId("welcome").showModal();
  byId("name").select();
}
byId("welcome").addEventListener("cancel", (event) => { if (!name) event.preventDefault(); });
byId("welcome").addEventListener("close", () => {
  const given = byId("name").value.trim();
  if (!given) return name || welcome();
  if (given === name && view) return undefined;
  name = given;
  remember("name", name);
  return begin();
});

async function begin() {
  byId("known-as").textContent = `You are ${name}.`;
  await show(await ask("look"));
  if (project.everything && !matchMedia("(pointer: coarse)").matches) byId("search").focus();
}

async function start() {
  for (;;) {
    try {
      const answer = await fetch("api/project");
      if (!answer.ok) throw new Refused((await answer.json()).problem);
      project = await answer.json();
      break;
    } catch (error) {
      showProblem(error instanceof Refused ? error.message : "The server does not answer.", "Try again");
      await Promise.race([pressed(byId("again")), pause(RETRY)]);
    }
  }
  hideProblem();
  composite = Math.max(0, project.composites.findIndex((each) => each.name === remembered("composite")));
  nameComposite();
  const many = project.everything;
  byId("answers").classList.toggle("many", many);
  byId("search").hidden = !many;
  byId("refresh").hidden = many;
  byId("confirm-row").hidden = !(project.several || project.absent);
  byId("absent").hidden = !project.absent;
  byId("question").textContent = project.several ? "Which of these are in the image?" : many ? "Which class is in the image?" : "Which of these is in the image?";
  for (const [what, wanted] of [["marking", project.absent], ["confirming", project.several || project.absent], ["searching", many], ["bands", project.composites.length > 1], ["placed", false]]) {
    document.querySelector(`#help .${what}`).hidden = !wanted;
  }
  byId("last-key").textContent = Math.min(9, project.candidates);
  byId("hint").textContent = many ? "Type to find a class, Enter takes the first. Esc leaves the field." : "Any class that you see is right: it need not be the largest.";
  if (name) await begin();
  else welcome();
}

start();
