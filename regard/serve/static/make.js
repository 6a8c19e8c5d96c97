/**
 * Makes an element. Functions become listeners (`onclick`), known properties are set, the rest become attributes;
 * strings among the children become text nodes, so nothing that a model writes is ever read as HTML.
 *
 * @param {string} tag  @param {Record<string, any>} properties  @param {...(Node | string | null)} children
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element) element[name] = value;
    else element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** @param {string} tag  @param {Record<string, any>} attributes */
export function makeSvg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** A token as it can be read: spaces, ends of lines and control characters are made visible. */
export function visible(token) {
  if (token === "") return "∅";
  const picture = (character) => String.fromCharCode(0x2400 + character.charCodeAt(0));
  return token.replaceAll(" ", "·").replaceAll("\n", "↵").replaceAll("\t", "⇥").replace(/[\0-\x1f]/g, picture);
}

/** A probability in per cent, with one digit where it matters. */
export function percent(probability) {
  const value = 100 * probability;
  if (value > 0 && value < 0.1) return "<0.1 %";
  return `${value.toFixed(value < 99.95 ? 1 : 0)} %`;
}
