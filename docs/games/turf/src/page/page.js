// The first zone of turf: its fields in the colours of the teams, and its best players.

const COLOURS = ["#ddd", "#c33", "#36c"];
const map = document.querySelector("#map");
const pen = map.getContext("2d");

async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function show() {
  const { round, side, teams } = await ask("/v1/zones/0/round");
  const { players } = await ask("/v1/boards/0?count=10");
  document.querySelector("#round").textContent = `The round ${round}.`;
  const size = map.width / side;
  teams.forEach((team, field) => {
    pen.fillStyle = COLOURS[team];
    const [column, row] = [field % side, Math.floor(field / side)];
    pen.fillRect(column * size, map.height - (row + 1) * size, size - 1, size - 1);
  });
  const lines = players.map(({ player_id, score }) => {
    const line = document.createElement("li");
    line.textContent = `player ${player_id}: ${score}`;
    return line;
  });
  document.querySelector("#board").replaceChildren(...lines);
}

setInterval(() => show().catch(console.error), 500);
