// The page of a review: shows what the server says, sends what people say. It decides nothing else.
import { Pictures } from "./pictures.js";
import { Stage } from "./stage.js";
import { asking, byId, introduce, invented, notice, number, pause, project as opened, remember, remembered, seconds, startClock, unfold, welcome, who } from "./talk.js";

const AGAIN = 500; // milliseconds until the server is asked again whether the model is there
const WORDS = [["yes", 1], ["no", -1], ["skip", 0]];

let project; // what does not change: classes, composites, whether it is blind
let view; // what is before us
let current = 0; // the question in focus
let moving = true; // another image is on its way: nothing can be answered
let seen = false; // the picture of this image is on the screen
let saving = Promise.resolve(); // answers are sent one after the other
let unsent = 0; // answers that are not acknowledged yet
let over = remembered("evidence") !== "off";
let threshold;

const stage = new Stage(byId("stage"), byId("frame"));
const ask = asking("review", who);
let pictures;

// -- showing ---------------------------------------------------------------------------------------

async function show(next) {
  const same = view && next.image === view.image;
  view = next;
  moving = !same;
  if (!same) {
    seen = false;
    const open = view.questions.findIndex((each) => each.value === null);
    current = Math.max(0, open);
  }
  showProgress();
  if (same) update(); // the same buttons: somebody may be pressing one
  else showQuestions();
  if (view.notice) notice(view.notice);
  byId("end").hidden = view.image !== null;
  byId("stage").classList.toggle("empty", view.image === null);
  if (view.image === null) {
    stage.clear();
    byId("broken").hidden = true;
    showEnd();
    moving = false;
    enable();
    return;
  }
  if (!same) await showPicture(true);
  enable();
}

async function showPicture(fresh) {
  const row = view.image;
  const which = pictures.address(row);
  const stale = () => row !== view.image || which !== pictures.address(row); // something else came meanwhile
  let image = null;
  try {
    image = await pictures.of(row);
    if (stale()) return;
    byId("broken").hidden = true;
  } catch (error) {
    if (stale()) return;
    byId("broken").textContent = error.broken ? error.message : "The picture did not arrive. Load the page again, or go on.";
    byId("broken").hidden = false;
  }
  if (image) stage.show(image, fresh, pictures.whole(row, image));
  else stage.clear();
  seen = image !== null;
  moving = false;
  enable();
  showEvidence();
  if (!fresh) return;
  startClock();
  pictures.place(row, () => view.image);
  document.body.dataset.shown = String(row);
  attend(current);
  speak();
  pictures.forget([view.image, view.upcoming]);
  pictures.ahead(view.upcoming);
}

// The map of the class in focus, laid over the image as soon as it is there.
async function showEvidence() {
  byId("evidence").setAttribute("aria-pressed", over);
  const question = view?.questions[current];
  if (!over || !question || !seen || !project.model) {
    stage.cover(null);
    return;
  }
  const [row, label] = [view.image, question.label];
  const layer = await pictures.at(row, `api/evidence/${row}/${label}`).catch(() => null);
  if (row !== view.image || label !== view.questions[current]?.label || !over) return;
  stage.cover(layer);
  byId("stage").dataset.evidence = layer ? String(label) : "";
}

function showProgress() {
  byId("bar").max = Math.max(view.total, 1);
  byId("bar").value = view.finished;
  byId("done").textContent = `${number.format(view.finished)} of ${number.format(view.total)}`;
  const said = [`${number.format(view.total - view.finished)} left`];
  if (view.answers) said.push(`${Math.round((100 * view.yes) / view.answers)} % yes`);
  const rate = document.createElement("span");
  rate.className = "rate"; // left out where there is no space for it
  if (view.rate) rate.textContent = ` · ${number.format(Math.round(view.rate))} answers per hour`;
  byId("pace").replaceChildren(said.map((each) => `· ${each}`).join(" "), rate);
}

const name = (label) => project.classes[label];

function showQuestions() {
  const marked = view.marked.map((label) => {
    const strong = document.createElement("b");
    strong.textContent = name(label);
    return strong;
  });
  const listed = marked.flatMap((each, place) => (place ? [", ", each] : [each]));
  byId("marked").replaceChildren(...(view.image === null ? [] : listed.length ? ["Marked: ", ...listed] : ["Nothing is marked yet."]));
  byId("questions").replaceChildren(...view.questions.map(shownQuestion));
  byId("answers").hidden = view.image === null;
  update();
}

function shownQuestion(question, place) {
  const item = document.createElement("li");
  const box = document.createElement("div");
  box.className = "question";
  box.setAttribute("role", "group");
  box.dataset.label = question.label;
  const about = document.createElement("div");
  about.className = "about";
  const called = document.createElement("span");
  called.className = "name";
  called.textContent = name(question.label);
  about.append(called);
  box.append(about);
  let spoken = name(question.label);
  if (question.percent !== null) {
    const percent = document.createElement("span");
    percent.className = "percent";
    percent.textContent = `${question.percent} %`;
    about.append(percent);
    const chance = document.createElement("div");
    chance.className = "chance";
    chance.append(document.createElement("span"));
    chance.firstChild.style.width = `${question.percent}%`;
    box.append(chance);
    spoken += `, ${question.percent} percent`;
  }
  box.setAttribute("aria-label", spoken);
  const choices = document.createElement("div");
  choices.className = "choices";
  for (const [word, value] of WORDS) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = `choice ${word}`;
    button.tabIndex = -1; // arrows lead to it; Tab leads from class to class
    button.setAttribute("aria-label", `${word}, ${name(question.label)}`);
    button.setAttribute("aria-keyshortcuts", word[0]);
    const letter = document.createElement("u");
    letter.textContent = word[0].toUpperCase();
    button.append(letter, word.slice(1));
    button.addEventListener("click", (event) => {
      if (event.detail) button.blur(); // of a mouse or a finger: Enter means "next" then
      focusOn(place);
      answer(value);
    });
    choices.append(button);
  }
  box.append(choices);
  box.tabIndex = 0;
  box.addEventListener("focusin", () => focusOn(place));
  box.addEventListener("click", (event) => { if (!event.target.closest("button")) attend(place); });
  item.append(box);
  return item;
}

const boxes = () => [...byId("questions").querySelectorAll(".question")];

// What changes with an answer, with the question in focus and with the threshold.
function update() {
  boxes().forEach((box, place) => {
    const { value, percent } = view.questions[place];
    box.classList.toggle("current", place === current);
    if (place === current) box.setAttribute("aria-current", "true");
    else box.removeAttribute("aria-current");
    box.classList.toggle("answered", value !== null);
    box.classList.toggle("would", value === null && percent !== null && percent >= threshold);
    WORDS.forEach(([, meant], at) => box.querySelectorAll(".choice")[at].setAttribute("aria-pressed", value === meant));
  });
  const open = view.questions.filter((each) => each.value === null);
  const would = open.filter((each) => each.percent !== null && each.percent >= threshold).length;
  byId("accept-text").textContent = `Accept ${would || "none"} from ${threshold} %`;
  byId("next-text").textContent = open.length ? `Next, skip ${open.length} open` : "Next image";
  enable();
}

function enable() {
  const answerable = !moving && view?.image !== null && seen;
  for (const button of byId("questions").querySelectorAll("button")) button.disabled = !answerable;
  byId("accept").disabled = !answerable || !view.questions.some((each) => each.value === null && each.percent >= threshold);
  byId("next").disabled = moving || view?.image === null;
  byId("undo").disabled = moving || !view?.undoable && !unsent;
}

function focusOn(place) {
  if (place === current || !view.questions[place]) return;
  current = place;
  update();
  showEvidence();
}

// The focus of the keyboard too, unless somebody uses another part of the page.
function attend(place) {
  focusOn(place);
  const box = boxes()[place];
  const away = ["threshold", "auto", "stage"].includes(document.activeElement?.id) || document.querySelector("dialog[open]");
  if (!box || away) return;
  box.focus({ focusVisible: false, preventScroll: true });
  box.scrollIntoView({ block: "nearest" });
}

function showEnd() {
  const all = view.finished >= view.total;
  byId("end-title").textContent = all ? "All images are reviewed" : "No image is left for you";
  byId("end-text").textContent = `You gave ${number.format(view.mine)} answers, and all are saved. ${all ? "Training takes the label file as it is; you can close this page." : "Others may still have images before them."}`;
  byId("look").hidden = all;
  byId("spoken").textContent = byId("end-title").textContent;
}

function speak() {
  const asked = view.questions.map((each) => name(each.label) + (each.percent === null ? "" : ` ${each.percent} percent`)).join(", ");
  const marked = view.marked.map(name).join(", ");
  byId("spoken").textContent = seen
    ? `${view.finished} of ${view.total} reviewed. Next image. ${marked ? `Marked: ${marked}. ` : ""}Asked: ${asked}`
    : byId("broken").textContent;
}

// -- what people do --------------------------------------------------------------------------------

// Sends one request after the other; the last answer of the server is what is shown.
function send(path, body) {
  const request = { image: view.image, request: invented(), ...body };
  unsent += 1;
  saving = saving.then(async () => {
    const told = await ask(path, request);
    unsent -= 1;
    if (!unsent || told.image !== view.image) await show(told);
  });
  return saving;
}

// The answer is on the page at once, and on its way to the server.
function answer(value) {
  const question = view?.questions[current];
  if (moving || !seen || !question) return;
  question.value = value;
  byId("spoken").textContent = `${name(question.label)}: ${WORDS.find(([, meant]) => meant === value)[0]}.`;
  const spent = seconds();
  startClock();
  const sent = send("answer", { label: question.label, value, seconds: spent });
  const after = view.questions.findIndex((each, place) => place > current && each.value === null);
  const open = after >= 0 ? after : view.questions.findIndex((each) => each.value === null);
  if (open >= 0) {
    attend(open);
    update();
    return;
  }
  update();
  if (byId("auto").checked) sent.then(() => actions.next());
}

async function decisive(path, body) {
  moving = true; // the answers to come are about what the server shows then
  enable();
  await send(path, body);
  moving = false;
  enable();
}

const actions = {
  yes: () => answer(1),
  no: () => answer(-1),
  skip: () => answer(0),
  accept: async () => {
    if (byId("accept").disabled || project.blind) return;
    await decisive("accept", { threshold, seconds: seconds() });
    startClock();
    const open = view.questions.findIndex((each) => each.value === null);
    if (open >= 0) attend(open);
  },
  next: () => { if (!byId("next").disabled) decisive("next", { seconds: seconds() }); },
  undo: () => { if (!byId("undo").disabled) decisive("undo", { image: undefined }); },
  look: async () => show(await ask("look")),
  evidence: () => {
    if (byId("evidence").disabled) return;
    over = !over;
    remember("evidence", over ? "on" : "off");
    showEvidence();
  },
  composite: () => { if (project.composites.length > 1) lookAgain(() => pictures.next()); },
  contrast: () => lookAgain(() => pictures.stretch()),
  "zoom-in": () => stage.zoom(1.5),
  "zoom-out": () => stage.zoom(1 / 1.5),
  "zoom-fit": () => stage.fit(),
  "show-help": () => unfold("help"),
  "show-counts": () => { showCounts(); unfold("counts"); },
  rename: () => { byId("help").close(); welcome(); },
};
for (const [id, act] of Object.entries(actions)) byId(id)?.addEventListener("click", act);

// The same image in another way.
async function lookAgain(change) {
  if (view.image === null) return;
  change();
  await showPicture(false);
  pictures.ahead(view.upcoming);
}

function choose(percent) {
  threshold = Math.min(100, Math.max(5, percent));
  byId("threshold").value = threshold;
  byId("threshold").setAttribute("aria-valuetext", `${threshold} percent`);
  if (view) update();
}
byId("threshold").addEventListener("input", () => {
  choose(Number(byId("threshold").value));
  remember("threshold", threshold);
});
byId("auto").checked = remembered("auto") === "on";
byId("auto").addEventListener("change", () => remember("auto", byId("auto").checked ? "on" : "off"));

function showCounts() {
  const lines = view.counts.map((counts, label) => {
    const line = document.createElement("tr");
    const title = document.createElement("th");
    title.scope = "row";
    title.textContent = name(label);
    line.append(title, ...counts.map((count) => {
      const cell = document.createElement("td");
      cell.textContent = number.format(count);
      return cell;
    }));
    return line;
  });
  byId("per-class").replaceChildren(...lines);
  const hours = view.rate ? `, ${number.format(Math.round(view.rate))} per hour` : "";
  byId("mine").textContent = `You gave ${number.format(view.mine)} of ${number.format(view.answers)} answers${hours}.`;
}

const keys = { y: "yes", n: "no", s: "skip", a: "accept", u: "undo", e: "evidence", b: "composite", x: "contrast", enter: "next", "?": "show-help", "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", 0: "zoom-fit" };
const moves = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

document.addEventListener("keydown", (event) => {
  // A key that is held down must not answer for the classes that follow.
  if (event.repeat && !moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!view || document.querySelector("dialog[open]")) return;
  if (event.target === byId("threshold") && (moves[event.key] || event.key.startsWith("Page"))) return;
  const onButton = event.target instanceof HTMLButtonElement || event.target === byId("auto");
  if (onButton && (event.key === "Enter" || event.key === " ")) return; // presses that button
  if (moves[event.key]) arrow(event);
  else if (event.key === "PageUp" || event.key === "PageDown") {
    if (project.blind) return;
    choose(threshold + (event.key === "PageUp" ? 5 : -5));
    remember("threshold", threshold);
    byId("spoken").textContent = byId("accept-text").textContent;
  } else if (keys[event.key.toLowerCase()]) actions[keys[event.key.toLowerCase()]]();
  else return;
  event.preventDefault();
});

// On the image arrows move the image; elsewhere up and down lead from class to class, left and right
// to the answers of one.
function arrow(event) {
  if (event.target === byId("stage")) return stage.move(...moves[event.key]);
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (step) return attend(Math.min(Math.max(current + step, 0), view.questions.length - 1));
  const box = boxes()[current];
  const choices = [...(box?.querySelectorAll(".choice") ?? [])];
  const at = choices.indexOf(document.activeElement) + (event.key === "ArrowRight" ? 1 : -1);
  return (choices[at] ?? box)?.focus();
}

// -- beginning -------------------------------------------------------------------------------------

async function begin() {
  await show(await ask("look"));
}

// The page is there before the questions are, and the questions before the model that shows evidence.
async function wait() {
  byId("answers").hidden = true;
  byId("stage").classList.add("empty");
  while (!project.ready) {
    byId("loading").hidden = false;
    byId("doing").textContent = project.doing ? `${project.doing} …` : "";
    if (project.failed) {
      byId("loading").querySelector("h2").textContent = "The model could not be loaded";
      byId("doing").textContent = "The window of adagc review says why.";
      return false;
    }
    await pause(AGAIN);
    project = await opened();
  }
  byId("loading").hidden = true;
  return true;
}

async function awaitModel() {
  const text = byId("evidence-text");
  while (!project.model) {
    byId("evidence").disabled = true;
    text.textContent = project.mute ? "No evidence" : "Model is loading";
    byId("evidence").title = project.mute ? "This model does not say where in an image it sees a class." : "";
    if (project.mute) return;
    await pause(2 * AGAIN);
    project = await opened();
  }
  byId("evidence").disabled = false;
  text.textContent = "Evidence";
  showEvidence();
}

async function start() {
  project = await opened();
  pictures = new Pictures(project);
  choose(Number(remembered("threshold") ?? project.threshold));
  if (!await wait()) return;
  if (project.blind) {
    if (remembered("evidence") === null) over = false;
    byId("accept-row").hidden = true;
    for (const each of document.querySelectorAll("#help .accepting")) each.hidden = true;
    byId("about").textContent = "Say for each class whether it is in the image. Some are what the model believes, some are drawn at random, and you cannot tell which: so your answers measure how right the model is.";
  }
  document.querySelector("#help .bands").hidden = project.composites.length < 2;
  awaitModel();
  await introduce(begin);
}

start();
