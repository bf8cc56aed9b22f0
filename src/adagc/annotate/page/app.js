// The page: shows what the server says, sends what people do. It decides nothing about the work.
import { Pictures } from "./pictures.js";
import { Stage } from "./stage.js";
import {
  asking, byId, duration, introduce, invented, key as keycap, notice, number, project as opened, RETRY, seconds, startClock, unfold,
  welcome, who,
} from "./talk.js";

let project; // what does not change: classes, composites, options
let view; // what is before us
let busy = true; // an answer is under way, or the image is not there yet
let seen = false; // the image of this view is on the screen
let marking = false; // the next key marks a class as not there
let marks = new Map(); // class number -> "present" or "absent", before the answer is sent
let around = false; // what lies around the image is on the screen, in place of it
let focusing = null; // the button that had the focus, for those who choose with Tab and Enter
let listed = []; // class numbers of the buttons, in their order

// -- what people work with -----------------------------------------------------------------------

const stage = new Stage(byId("stage"), byId("frame"));
let pictures;
const deliver = asking("annotate", who);

async function ask(path, body) {
  busy = true;
  enable();
  return deliver(path, body);
}

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
  pictures.forget([view.image, view.upcoming]);
  pictures.ahead(view.upcoming);
}

async function showPicture(fresh) {
  const row = view.image;
  leaveSurroundings();
  const which = pictures.address(row);
  let image = null;
  try {
    image = await pictures.of(row);
    byId("broken").hidden = true;
  } catch (error) {
    if (row !== view.image || which !== pictures.address(row)) return;
    byId("broken").textContent = error.broken ? error.message : "The picture did not arrive. Skip it, or load the page again.";
    byId("broken").hidden = false;
  }
  if (row !== view.image || which !== pictures.address(row)) return; // something else came meanwhile
  if (image) stage.show(image, fresh, pictures.whole(row, image));
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
  const image = await pictures.around(row).catch(() => null);
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
  byId("around").hidden = true;
  const neighbours = await pictures.place(row, () => view.image);
  if (neighbours === null || row !== view.image) return;
  byId("around").hidden = !neighbours;
  // The server may not have come to the neighbours yet.
  if (!neighbours && !again) setTimeout(() => { if (row === view.image) showPlace(row, true); }, RETRY);
  if (neighbours) document.querySelector("#help .placed").hidden = false;
}

function showProgress() {
  byId("bar").max = Math.max(view.total, 1);
  byId("bar").value = view.finished;
  byId("done").textContent = `${number.format(view.finished)} of ${number.format(view.total)}`;
  byId("pace").replaceChildren();
  if (!view.rate) return;
  const rate = document.createElement("span");
  rate.className = "rate"; // left out where there is no space for it
  rate.textContent = `· ${number.format(Math.round(view.rate))} per hour `;
  const left = view.finished < view.total ? `· ${duration((view.total - view.finished) / view.rate)} left` : "";
  byId("pace").append(rate, left);
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
    button.setAttribute("aria-keyshortcuts", place + 1);
    button.append(keycap(place + 1));
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
    byId("spoken").textContent = byId("marks").textContent || "Nothing is marked.";
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
    seconds: seconds(),
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
  composite: () => { if (project.composites.length > 1) lookAgain(() => pictures.next()); },
  contrast: () => lookAgain(() => pictures.stretch()),
  around: () => showSurroundings(),
  "zoom-in": () => stage.zoom(1.5),
  "zoom-out": () => stage.zoom(1 / 1.5),
  "zoom-fit": () => stage.fit(),
  "show-help": () => unfold("help"),
  "show-counts": () => { showCounts(); unfold("counts"); },
  rename: () => { byId("help").close(); welcome(); },
};
for (const [id, act] of Object.entries(actions)) byId(id).addEventListener("click", act);

// The same image in another way.
async function lookAgain(change) {
  if (view.image === null) return;
  change();
  await showPicture(false);
  pictures.ahead(view.upcoming);
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

const keys = { r: "refresh", n: "none", s: "skip", u: "undo", b: "composite", x: "contrast", c: "around", a: "absent", enter: "confirm", "?": "show-help", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "zoom-fit" };
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

async function begin() {
  await show(await ask("look"));
  if (project.everything && !matchMedia("(pointer: coarse)").matches) byId("search").focus();
}

async function start() {
  project = await opened();
  pictures = new Pictures(project);
  const many = project.everything;
  byId("answers").classList.toggle("many", many);
  byId("search").hidden = !many;
  byId("refresh").hidden = many;
  for (const id of ["marks", "confirm-row"]) byId(id).hidden = !(project.several || project.absent);
  byId("absent").hidden = !project.absent;
  byId("question").textContent = project.several ? "Which of these are in the image?" : many ? "Which class is in the image?" : "Which of these is in the image?";
  for (const [what, wanted] of [["marking", project.absent], ["confirming", project.several || project.absent], ["searching", many], ["bands", project.composites.length > 1], ["placed", false]]) {
    document.querySelector(`#help .${what}`).hidden = !wanted;
  }
  byId("last-key").textContent = Math.min(9, project.candidates);
  byId("hint").textContent = many ? "Type to find a class, Enter takes the first. Esc leaves the field." : "Any class that you see is right: it need not be the largest.";
  await introduce(begin);
}

start();
