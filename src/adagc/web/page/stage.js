// The picture: as large as its place allows, with zoom and pan down to single pixels.

const SMOOTH = 6; // screen pixels per image pixel from which on pixels are shown as squares
const CLOSEST = 32; // screen pixels per image pixel at most

export class Stage {
  constructor(place, frame) {
    this.place = place;
    this.frame = frame;
    this.image = null;
    this.over = null; // another picture of the same place, laid over it
    this.whole = null; // gives the image in full size, if this is a reduced one
    this.pointers = new Map();
    this.reset();
    new ResizeObserver(() => this.draw()).observe(place);
    place.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event);
    }, { passive: false });
    place.addEventListener("dblclick", (event) => {
      if (event.target.closest("button")) return;
      if (this.scale > 1) this.fit();
      else this.zoom(4, event);
    });
    place.addEventListener("pointerdown", (event) => this.press(event));
    place.addEventListener("pointermove", (event) => this.drag(event));
    for (const kind of ["pointerup", "pointercancel"]) place.addEventListener(kind, (event) => this.pointers.delete(event.pointerId));
  }

  reset() {
    this.scale = 1; // 1 is the whole image
    this.x = 0;
    this.y = 0;
  }

  clear() {
    this.image = this.over = null;
    this.frame.replaceChildren();
  }

  // A fresh image is shown whole; another composite of the same one stays where it is.
  show(image, fresh, whole) {
    if (fresh) this.reset();
    this.image = image;
    this.whole = whole;
    if (fresh) this.over = null;
    this.arrange();
    this.sharpen();
  }

  // Lays a picture of the same place over the image, however many pixels it has; null takes it away.
  cover(over) {
    this.over = over;
    this.arrange();
  }

  arrange() {
    if (!this.image) return;
    this.over?.classList.add("over");
    this.draw();
    this.frame.replaceChildren(...[this.image, this.over].filter(Boolean));
  }

  fit() {
    this.reset();
    this.draw();
  }

  // Screen pixels per image pixel when the whole image is shown.
  get fitting() {
    const { naturalWidth: width, naturalHeight: height } = this.image;
    return Math.min(this.place.clientWidth / width, this.place.clientHeight / height);
  }

  zoom(factor, at) {
    if (!this.image) return;
    const before = this.scale;
    this.scale = Math.min(Math.max(before * factor, 1), Math.max(1, CLOSEST / this.fitting));
    if (at) { // what is under the pointer stays there
      const box = this.place.getBoundingClientRect();
      const [x, y] = [at.clientX - box.left - box.width / 2, at.clientY - box.top - box.height / 2];
      this.x = x - ((x - this.x) * this.scale) / before;
      this.y = y - ((y - this.y) * this.scale) / before;
    } else {
      this.x *= this.scale / before;
      this.y *= this.scale / before;
    }
    this.draw();
    this.sharpen();
  }

  move(right, down) {
    this.x += (right * this.place.clientWidth) / 8;
    this.y += (down * this.place.clientHeight) / 8;
    this.draw();
  }

  press(event) {
    if (event.target.closest("button")) return;
    this.pointers.set(event.pointerId, event);
    if (this.scale > 1 || this.pointers.size > 1) this.place.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    if (this.pointers.size === 1) {
      this.x += event.clientX - before.clientX;
      this.y += event.clientY - before.clientY;
    } else { // two fingers: their distance zooms
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) || 1;
      this.zoom(apart(event) / apart(before), { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 });
    }
    this.pointers.set(event.pointerId, event);
    this.draw();
  }

  // The full image when somebody looks closely.
  async sharpen() {
    if (!this.whole || this.scale <= 1) return;
    const [image, whole] = [this.image, this.whole];
    this.whole = null;
    const full = await whole().catch(() => null);
    if (full && this.image === image) {
      this.image = full;
      this.arrange();
    }
  }

  draw() {
    if (!this.image) return;
    const { naturalWidth: width, naturalHeight: height } = this.image;
    const fitting = this.fitting;
    const [wide, high] = [width * fitting, height * fitting];
    // The image cannot be moved out of its place.
    const [spareX, spareY] = [Math.max(0, (wide * this.scale - this.place.clientWidth) / 2), Math.max(0, (high * this.scale - this.place.clientHeight) / 2)];
    this.x = Math.min(Math.max(this.x, -spareX), spareX);
    this.y = Math.min(Math.max(this.y, -spareY), spareY);
    for (const { style } of [this.image, this.over].filter(Boolean)) {
      style.width = `${wide}px`;
      style.height = `${high}px`;
      style.transform = `translate(calc(-50% + ${this.x}px), calc(-50% + ${this.y}px)) scale(${this.scale})`;
    }
    this.image.classList.toggle("pixels", this.scale > 1 && fitting * this.scale >= SMOOTH);
    this.place.classList.toggle("zoomed", this.scale > 1);
  }
}
