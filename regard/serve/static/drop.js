/** A frame that takes a file: chosen by a control in it, or dropped on it. */

import { make } from "./make.js";

/**
 * @param {{name: string, label: string, take: (file: File) => void}} options
 * @param {...Node} children  what stands below the control
 */
export function createDrop({ name, label, take }, ...children) {
  const file = make("input", { type: "file", name, onchange: () => taken(file.files[0]) });
  const element = make("div", { class: "stack drop", ondragover: over, ondragleave: left, ondrop: dropped },
    make("label", { class: "field wide" }, make("span", {}, label), file), ...children);

  function taken(next) {
    if (next) take(next);
  }

  function over(event) {
    event.preventDefault();
    element.classList.add("over");
  }

  function left() {
    element.classList.remove("over");
  }

  function dropped(event) {
    event.preventDefault();
    left();
    taken(event.dataTransfer.files[0]);
  }

  return { element, file };
}

/** The content of a file as a data: URI. @param {File} file @returns {Promise<string>} */
export function uriOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
