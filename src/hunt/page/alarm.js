// The banner for trouble that nobody may overlook: no server answers, a zone is stale or halted, a token is missing. It
// shows one trouble at a time, the gravest first.

import { $, write } from "/dom.js";
import { clock } from "/words.js";

// Zones that are named when several are not live.
const ZONES_NAMED = 6;

// Returns the gravest trouble, if there is any: its grade, a title, a sentence, how long it has lasted if that is known,
// and whether the page shows old data. The sentence stays as it is: a screen reader reads it again if it changes.
export function judge(known) {
  const { refusal, hasToken, silence, hasBeenHeard, zone, zones, stream, streamError, streamLostFor } = known;
  if (refusal) {
    const wanted = hasToken ? "Wrong token" : "A token is needed";
    const title = refusal.status === 401 ? wanted : "This token does not allow it";
    return { grade: "refused", title, text: refusal.message, isOld: true, wantsToken: true };
  }
  if (silence) {
    return {
      grade: "gone", isOld: true, title: hasBeenHeard ? "Connection lost" : "Nobody answers", lasts_ms: silence,
      text: "No answer from the server. The page tries again until there is one.",
    };
  }
  if (zone?.state === "halted") {
    return { grade: "halted", isOld: true, title: `Zone ${zone.zone} is halted`, text: zone.sentence ?? "" };
  }
  if (zone?.at?.stale_ms) {
    const text = "Nobody plays it: its owner publishes nothing. All below is old.";
    return { grade: "stale", isOld: true, title: `Zone ${zone.zone} is stale`, text, lasts_ms: zone.at.stale_ms };
  }
  if (zone?.state === "loading") {
    const text = zone.sentence ?? "It is shown in a moment.";
    return { grade: "loading", isOld: false, title: `Zone ${zone.zone} is being loaded`, text };
  }
  if (stream === "refused") {
    return { grade: "none", isOld: true, title: "The zone cannot be shown", text: streamError?.message ?? "" };
  }
  if (stream === "lost" && streamLostFor > 1_500) {
    const reason = streamError ? `: ${streamError.message}` : "";
    return { grade: "gone", isOld: true, title: "The stream is interrupted", text: `The page tries again${reason}` };
  }
  const dead = zone ? [] : (zones ?? []).filter((one) => ["halted", "stale"].includes(one.state));
  if (dead.length) {
    const names = dead.slice(0, ZONES_NAMED).map((one) => `${one.zone} (${one.state})`).join(", ");
    const more = dead.length > ZONES_NAMED ? ` and ${dead.length - ZONES_NAMED} more` : "";
    const title = dead.length === 1 ? "One zone is not live" : `${dead.length} zones are not live`;
    return { grade: "stale", isOld: false, title, text: `Of ${zones.length}: ${names}${more}.` };
  }
  return null;
}

export function show(trouble) {
  document.body.classList.toggle("old", Boolean(trouble?.isOld));
  document.body.dataset.grade = trouble?.grade ?? "";
  $("alarm").hidden = trouble === null;
  write($("alarm-title"), trouble?.title ?? "");
  write($("alarm-text"), trouble?.text ?? "");
  write($("alarm-time"), trouble?.lasts_ms ? `For ${clock(trouble.lasts_ms)} so far.` : "");
  $("door").hidden = !trouble?.wantsToken;
}
