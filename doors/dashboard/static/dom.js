// Making and changing elements. Text is only ever put in as text: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of that id; it is in the page. */
export const byId = (id) => document.getElementById(id);

/**
 * An element. `props`: `class`, `text`, `on` (listeners by name), `data` (a dataset), everything else an attribute;
 * an attribute that is null, undefined or false is left out.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") element.textContent = value;
    else if (name === "class") element.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element with attributes. */
export function svg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Change an element's text, if it is another one: what stays costs no layout. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Change an attribute, if it is another one; null removes it. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/**
 * Make `parent`'s children those of `items`, in that order: kept by key, made by `create(item)`, brought up to date by
 * `update(element, item)`. Elements that stay keep their focus, their scroll position and what was typed into them.
 */
export function reconcile(parent, items, keyOf, create, update) {
  const before = new Map();
  for (const child of parent.children) before.set(child.reconcileKey, child);
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let element = before.get(key);
    if (element === undefined) {
      element = create(item);
      element.reconcileKey = key;
    }
    before.delete(key);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of before.values()) element.remove();
}
