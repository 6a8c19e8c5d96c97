/** A button that records from the microphone: what was said comes as a WAV file of 16 kHz, which every server reads. */

import { make } from "./make.js";
import { problemLine } from "./task.js";

const RATE = 16000;

/** Browsers give a microphone only to pages of this machine, or that came by https. */
export const canRecord = () => Boolean(navigator.mediaDevices?.getUserMedia && globalThis.MediaRecorder);

/** @param {(file: File) => void} take */
export function createRecorder(take) {
  const button = make("button", { type: "button", class: "record", onclick: toggle }, "Record");
  const problem = make("div");
  let running = null;

  async function toggle() {
    if (running) return running.stop();
    problem.replaceChildren();
    try {
      const source = await navigator.mediaDevices.getUserMedia({ audio: true });
      const pieces = [];
      running = new MediaRecorder(source);
      running.addEventListener("dataavailable", ({ data }) => pieces.push(data));
      running.addEventListener("stop", () => finish(source, pieces));
      running.start();
      button.textContent = "Stop recording";
    } catch (error) {
      fail(new Error(`No microphone: ${error.message}.`));
    }
  }

  async function finish(source, pieces) {
    source.getTracks().forEach((track) => track.stop());
    running = null;
    button.textContent = "Record";
    try {
      take(await wavOf(new Blob(pieces)));
    } catch (error) {
      fail(error);
    }
  }

  const fail = (error) => problem.replaceChildren(problemLine(error, toggle));

  return { element: make("div", {}, button, problem), end: () => running?.stop() };
}

/** A recording in the browser's own format as a WAV file of 16 bits. */
async function wavOf(blob) {
  const context = new OfflineAudioContext(1, 1, RATE);
  const decoded = await context.decodeAudioData(await blob.arrayBuffer());
  const samples = decoded.getChannelData(0);
  const data = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const write = (at, text) => [...text].forEach((letter, index) => data.setUint8(at + index, letter.charCodeAt(0)));
  write(0, "RIFF");
  data.setUint32(4, 36 + 2 * samples.length, true);
  write(8, "WAVEfmt ");
  [16, 1 + (1 << 16), RATE, 2 * RATE, 2 + (16 << 16)].forEach((value, index) => data.setUint32(16 + 4 * index, value, true));
  write(36, "data");
  data.setUint32(40, 2 * samples.length, true);
  samples.forEach((value, index) => data.setInt16(44 + 2 * index, 32767 * Math.max(-1, Math.min(1, value)), true));
  return new File([data], "recording.wav", { type: "audio/wav" });
}
