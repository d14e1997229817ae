// A worker that reads one stream for the page. A busy zone has thousands of events per second: parsed here, they hinder
// nobody who draws, and the page gets many at once, some dozen times a second.

import { Huntd } from "/huntd-browser.mjs";

// Milliseconds for which events are collected.
const COLLECTED_MS = 30;

let collected = [], since = 0;

function hand() {
  if (collected.length > 0) postMessage(collected);
  collected = [];
}

function collect(entry) {
  const now = performance.now();
  if (collected.length === 0) {
    since = now;
    setTimeout(hand, COLLECTED_MS);
  }
  collected.push(entry);
  // Timers may wait while messages come without a pause.
  if (now - since > COLLECTED_MS) hand();
}

// An error crosses over to the page in parts. One without a status is of the network.
const parts = (error) => error && { status: error.status, detail: error.message };

onmessage = ({ data: { topics, token } }) => {
  const stream = new Huntd(location.origin, { token }).stream(topics, {
    event: (name, data, id) => collect({ name, data, id }),
    state: (state, error) => collect({ state, error: parts(error) }),
  });
  stream.closed.catch((error) => collect({ state: "refused", error: parts(error) }));
};
