// The connection to the server: every request of the page goes through here, so that it knows whether anybody answers.

import { Huntd, HuntdError } from "/huntd-browser.mjs";

const token = () => sessionStorage.getItem("token") ?? "";

// Milliseconds without an answer after which the server counts as gone.
const GONE_MS = 2_500;

// Milliseconds before a reader that could not be loaded is loaded again.
const RETRY_MS = 1_000;

class Link {
  constructor() {
    this.huntd = new Huntd(location.origin, { token });
    this.heardAt = performance.now();
    this.hasBeenHeard = false;
    // The server's last refusal, if there was one. Status 401 asks for a token; others are shown as they are.
    this.refusal = null;
  }

  useToken(text) {
    sessionStorage.setItem("token", text);
    this.refusal = null;
  }

  hasToken() { return token() !== ""; }

  heard() {
    this.heardAt = performance.now();
    this.hasBeenHeard = true;
  }

  // Milliseconds for which nobody has answered, or 0.
  silence() {
    const silent = performance.now() - this.heardAt;
    return silent > GONE_MS ? silent : 0;
  }

  async get(path) {
    try {
      const answer = await this.huntd.get(path);
      this.heard();
      if (this.refusal?.status === 401) this.refusal = null;
      return answer;
    } catch (error) {
      this.failed(error);
      throw error;
    }
  }

  failed(error) {
    if (!(error instanceof HuntdError)) return;
    this.heard();
    if ([401, 403].includes(error.status)) this.refusal = error;
  }

  // A stream, until it is closed. What comes is an answer, too.
  stream(topics, take, tell) {
    let reader = null, waiting = null;
    const takeAll = ({ data: entries }) => {
      if (entries.some((entry) => entry.name)) this.heard();
      for (const { name, data, id, state, error } of entries) {
        if (name) take(name, data, id);
        else this.tell(state, error, tell);
      }
    };
    const start = () => {
      reader = new Worker("/reader.js", { type: "module" });
      reader.onmessage = takeAll;
      // Its script could not be loaded.
      reader.onerror = () => {
        tell("lost", null);
        waiting = setTimeout(start, RETRY_MS);
      };
      reader.postMessage({ topics, token: token() });
    };
    start();
    return { close: () => { clearTimeout(waiting); reader.terminate(); } };
  }

  tell(state, parts, tell) {
    const error = parts?.status === undefined ? null : new HuntdError(parts.status, parts.detail);
    if (error) this.failed(error);
    tell(state, error);
  }
}

export const link = new Link();
