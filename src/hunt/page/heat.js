// How many players are where: a square of cells in shades of one colour. The fewer there are, the larger the cells, so
// that a crowd is seen and not each player.

const CELLS_MIN = 8;
const CELLS_MAX = 48;

// Players of a cell if they stand evenly.
const PLAYERS_OF_CELL = 2;

export class Heat {
  constructor(players, side) {
    const even = Math.round(Math.sqrt(players / PLAYERS_OF_CELL));
    this.cells = Math.max(CELLS_MIN, Math.min(CELLS_MAX, even));
    this.side = side;
    this.counts = new Uint32Array(this.cells * this.cells);
    this.most = 1;
  }

  cell(at) {
    return Math.max(0, Math.min(this.cells - 1, Math.floor(at / this.side * this.cells)));
  }

  add(x, y, players) {
    const at = (this.cells - 1 - this.cell(y)) * this.cells + this.cell(x);
    this.counts[at] += players;
    this.most = Math.max(this.most, this.counts[at]);
  }

  // Paints it over the whole canvas.
  paint(pen, color) {
    const { width } = pen.canvas, size = width / this.cells;
    pen.clearRect(0, 0, width, width);
    pen.fillStyle = color;
    this.counts.forEach((players, at) => {
      if (players === 0) return;
      const column = at % this.cells, row = Math.floor(at / this.cells);
      pen.globalAlpha = 0.1 + 0.8 * players / this.most;
      const [left, top] = [Math.round(column * size), Math.round(row * size)];
      pen.fillRect(left, top, Math.round((column + 1) * size) - left, Math.round((row + 1) * size) - top);
    });
    pen.globalAlpha = 1;
  }
}
