/**
 * The views of the page; a model opens with the first that it can do. A new view is one file and one line here.
 *
 * @typedef {{id: string, does: string[], loaded: boolean, context: number | null, error: string | null}} Model
 * @typedef {{readonly model: Model, refresh: () => void, announce: (text: string) => void}} Context
 *   `model` is always the one that is picked now
 * @typedef {{go: () => void, stop: () => void, modelChanged?: () => void, end?: () => void}} Mounted
 *   `end` is called when another view takes its place
 * @typedef {{name: string, title: string, needs: string, mount: (host: HTMLElement, context: Context) => Mounted}} View
 *   `needs` is what a model must do for the view to be offered
 */

import { view as chat } from "./chat.js";
import { view as classify } from "./classify.js";
import { view as compare } from "./compare.js";
import { view as forecast } from "./forecast.js";
import { view as look } from "./look.js";
import { view as predict } from "./predict.js";
import { view as transcribe } from "./transcribe.js";
import { view as translate } from "./translate.js";
import { view as videos } from "./videos.js";
import { view as write } from "./write.js";

/** @type {View[]} */
export const views = [chat, translate, write, classify, predict, forecast, videos, transcribe, compare, look];
