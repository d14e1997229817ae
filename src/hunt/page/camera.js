// Which part of a zone is on the screen, and how people move it: wheel, drag, pinch and keys. North is above, as y
// grows upwards.

// The nearest that one can look, in pixels of the screen for a cm.
const ZOOM_MAX = 0.25;

// A pointer that moved less than this, in pixels, has clicked.
const CLICK_PX = 5;

const STEP_PX = 80;

export class Camera {
  constructor(canvas, { onClick, onHover, onMove }) {
    Object.assign(this, { canvas, onClick, onHover, onMove });
    // The middle in cm, and pixels for a cm.
    Object.assign(this, { x: 0, y: 0, zoom: 1, side: 0, width: 0, height: 0, isFitted: true });
    this.pointers = new Map();
    this.wayPx = 0;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => onHover(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  // The canvas has this size now. It is asked for once a frame, and not for each player.
  resize(width, height) {
    Object.assign(this, { width, height });
    if (this.isFitted) this.fit();
    else this.limit();
  }

  // The whole map.
  fit(side = this.side) {
    this.side = side;
    this.look(side / 2, side / 2, this.least());
  }

  least() { return this.side ? Math.min(this.width, this.height) / this.side : 1; }

  isWhole() { return this.zoom <= this.least() * 1.01; }

  limit() {
    this.zoom = Math.max(this.least(), Math.min(Math.max(ZOOM_MAX, this.least()), this.zoom));
    const [halfX, halfY] = [this.width / 2 / this.zoom, this.height / 2 / this.zoom];
    const inside = (at, half) => Math.max(half, Math.min(at, this.side - half));
    const middle = (at, half) => (half * 2 >= this.side ? this.side / 2 : inside(at, half));
    this.x = middle(this.x, halfX);
    this.y = middle(this.y, halfY);
    this.isFitted = this.isWhole();
    this.canvas.classList.toggle("zoomed", !this.isFitted);
  }

  look(x, y, zoom = this.zoom) {
    Object.assign(this, { x, y, zoom });
    this.limit();
  }

  toScreen(x, y) { return [this.width / 2 + (x - this.x) * this.zoom, this.height / 2 - (y - this.y) * this.zoom]; }

  toMap(left, top) {
    return [this.x + (left - this.width / 2) / this.zoom, this.y - (top - this.height / 2) / this.zoom];
  }

  // Nearer or farther, so that what is under this point stays there.
  zoomAt(left, top, factor) {
    const [x, y] = this.toMap(left, top);
    this.zoom *= factor;
    this.limit();
    const [newX, newY] = this.toMap(left, top);
    this.pan(x - newX, y - newY);
  }

  zoomBy(factor) { this.zoomAt(this.width / 2, this.height / 2, factor); }

  pan(x, y) {
    this.x += x;
    this.y += y;
    this.limit();
  }

  wheel(event) {
    event.preventDefault();
    this.zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
  }

  down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (this.pointers.size === 1) this.wayPx = 0;
  }

  move(event) {
    const now = [event.offsetX, event.offsetY], last = this.pointers.get(event.pointerId);
    if (!last) return this.onHover(now);
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
    this.pointers.set(event.pointerId, now);
    this.wayPx += Math.hypot(now[0] - last[0], now[1] - last[1]);
    if (this.wayPx < CLICK_PX) return;
    if (others.length === 1) {
      const [other] = others;
      const far = (at) => Math.max(1, Math.hypot(at[0] - other[0], at[1] - other[1]));
      this.zoomAt(...other, far(now) / far(last));
    } else if (others.length === 0) {
      this.onMove();
      this.pan((last[0] - now[0]) / this.zoom, (now[1] - last[1]) / this.zoom);
    }
  }

  up(event) {
    const at = this.pointers.get(event.pointerId);
    this.pointers.delete(event.pointerId);
    if (at && event.type === "pointerup" && this.wayPx < CLICK_PX) this.onClick(at);
  }

  key(event) {
    const step = STEP_PX / this.zoom;
    const acts = {
      "+": () => this.zoomBy(1.4), "=": () => this.zoomBy(1.4), "-": () => this.zoomBy(1 / 1.4), 0: () => this.fit(),
      ArrowLeft: () => this.pan(-step, 0), ArrowRight: () => this.pan(step, 0),
      ArrowUp: () => this.pan(0, step), ArrowDown: () => this.pan(0, -step),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (event.key.startsWith("Arrow")) this.onMove();
    act();
  }
}
