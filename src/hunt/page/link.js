// The connection to the server: every request of the page goes through here, so that it knows whether anybody answers.

import { Huntd, HuntdError } from "/huntd-browser.mjs";

const token = () => sessionStorage.getItem("token") ?? "";

// Milliseconds without an answer after which the server counts as gone.
const GONE_MS = 2_500;

class Link {
  constructor() {
    this.huntd = new Huntd(location.origin, { token });
    this.heardAt = performance.now();
    this.hasBeenHeard = false;
    // What the server has refused: 401 wants a token, and any other is told as it is.
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

  // A stream. What comes is an answer, too.
  stream(topics, take, tell) {
    const stream = this.huntd.stream(topics, {
      event: (name, data, id) => { this.heard(); take(name, data, id); },
      state: (state, error) => { if (error) this.failed(error); tell(state, error); },
    });
    stream.closed.catch((error) => { this.failed(error); tell("refused", error); });
    return stream;
  }
}

export const link = new Link();
