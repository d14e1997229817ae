// The address of what is shown, as in `#zone=3&player=42`, so that one can send it to somebody.

export function read() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^[0-9]+$/.test(asked.get(name) ?? "") ? asked.get(name) : null);
  const zone = number("zone");
  return { zone: zone === null ? null : Number(zone), player: number("player") };
}

// Writes it. Another zone is a step that the browser can go back, if it may be one.
export function write({ zone, player }, mayStep = true) {
  const parts = [];
  if (zone !== null) parts.push(`zone=${zone}`);
  if (player) parts.push(`player=${player}`);
  const hash = parts.length ? `#${parts.join("&")}` : "";
  if (hash === location.hash) return;
  const isStep = mayStep && read().zone !== zone;
  history[isStep ? "pushState" : "replaceState"](null, "", hash || location.pathname);
}
