// Counts the outcomes of a zone's events between two positions. The offsets tell the number of records. A record
// without an update changed nothing or was no event.

export class Count {
  // An event makes one of these updates at most. All of its updates have its time.
  static OWN = new Set(["refused", "joined", "arrived", "left", "moved", "rotated", "shot", "looted", "item_used",
    "hunt_started", "rules_changed"]);

  constructor({ update, offset }) {
    Object.assign(this, { from: { update, offset, when: performance.now() }, to: null, next: update, events: [] });
    this.total = { applied: 0, refused: 0, noOp: 0 };
  }

  take(update, number) {
    const isOwn = Count.OWN.has(update.kind);
    let event = this.events.at(-1);
    if (event?.time !== update.ts_us || (isOwn && event.isDecided)) {
      event = { time: update.ts_us, number, isDecided: false, isRefused: false };
      this.events.push(event);
    }
    event.isDecided ||= isOwn;
    event.isRefused ||= update.kind === "refused";
    this.next = number + 1;
  }

  // The zone has come to this position. Gives how many events per second there were up to the one before, once all
  // updates up to there have come.
  reach({ update, offset }) {
    const { from, to } = this;
    const here = { update, offset, when: performance.now() };
    // Another process at this address may not have come so far.
    if (offset < (to ?? from).offset) return null;
    if (to === null) { this.to = here; return null; }
    if (this.next < to.update) return null;
    const end = this.events.findIndex((event) => event.number >= to.update);
    const events = this.events.splice(0, end < 0 ? this.events.length : end);
    const refused = events.filter((event) => event.isRefused).length, applied = events.length - refused;
    const counted = { applied, refused, noOp: to.offset - from.offset - events.length };
    for (const name in counted) this.total[name] += counted[name];
    Object.assign(this, { from: to, to: here });
    const perSecond = (number) => Math.round(number * 1000 / (to.when - from.when));
    return { applied: perSecond(applied), refused: perSecond(refused), noOp: perSecond(counted.noOp) };
  }
}
