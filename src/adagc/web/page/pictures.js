// Pictures of images: loaded ahead, kept while they are near, in the bands that somebody has chosen.
import { byId, key, remember, remembered } from "./talk.js";

export class Pictures {
  constructor(project) {
    this.project = project;
    this.loaded = new Map(); // address -> [row, a promise of a loaded picture]
    this.placeless = false; // images of this folder do not say where they lie
    this.composite = Math.max(0, project.composites.findIndex((each) => each.name === remembered("composite")));
    this.alone = remembered("contrast") === "image"; // stretched by the values of each image alone
    this.label();
  }

  of(row, whole = false) {
    return this.at(row, this.address(row) + (whole ? "&whole=true" : ""));
  }

  // What is shown of an image: two that are equal show the same.
  address(row) {
    return `api/picture/${row}/${this.composite}?alone=${this.alone}`;
  }

  // Whatever else is drawn of an image: kept, and let go together with it.
  at(row, address) {
    if (!this.loaded.has(address)) {
      const picture = load(address);
      picture.catch(() => this.loaded.delete(address));
      this.loaded.set(address, [row, picture]);
    }
    return this.loaded.get(address)[1];
  }

  // What lies around an image: asked for by a key only, and made anew each time.
  around(row) {
    return load(`api/context/${row}/${this.composite}`);
  }

  ahead(row) {
    if (row !== null) this.of(row).catch(() => {});
  }

  // The image in full size, if the picture is a reduced one.
  whole(row, image) {
    return Math.max(image.naturalWidth, image.naturalHeight) >= this.project.longest ? () => this.of(row, true) : null;
  }

  forget(keep) {
    for (const [address, [row, picture]] of this.loaded) {
      if (keep.includes(row)) continue;
      this.loaded.delete(address);
      picture.then((image) => URL.revokeObjectURL(image.src), () => {});
    }
  }

  next() {
    this.composite = (this.composite + 1) % this.project.composites.length;
    remember("composite", this.project.composites[this.composite].name);
    this.label();
  }

  stretch() {
    this.alone = !this.alone;
    remember("contrast", this.alone ? "image" : "all");
    this.label();
  }

  label() {
    const button = byId("composite");
    button.hidden = this.project.composites.length < 2;
    const { name, bands } = this.project.composites[this.composite];
    button.replaceChildren(key("B"), ` ${name}`);
    button.title = `Bands: ${bands.join(", ")}`;
    byId("contrast").setAttribute("aria-pressed", this.alone);
  }

  // Shows where the image lies on earth, unless another one is on the screen by then. Returns how
  // many images lie around it; null if nothing is known.
  async place(row, current) {
    byId("where").hidden = true;
    const told = this.placeless ? {} : await fetch(`api/place/${row}`).then((answer) => answer.json()).catch(() => ({}));
    if (row !== current()) return null;
    if (told.latitude === undefined) {
      this.placeless = true;
      return null;
    }
    const degrees = (angle, [plus, minus]) => `${Math.abs(angle).toFixed(4)}° ${angle < 0 ? minus : plus}`;
    const wide = told.width >= 10000 ? `${Math.round(told.width / 1000)} km` : told.width >= 1000 ? `${(told.width / 1000).toFixed(1)} km` : `${Math.round(told.width)} m`;
    byId("where").textContent = `${degrees(told.latitude, "NS")}, ${degrees(told.longitude, "EW")} · ${wide} wide`;
    byId("where").hidden = false;
    return told.around;
  }
}

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
