// Elements without markup: every text goes through textContent, so nothing that a job is called can become HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. Of `props`, `on` are listeners and `vars` CSS variables; the others are attributes (null, false: left out). */
export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "vars") {
      for (const [variable, own] of Object.entries(value)) element.style.setProperty(variable, own);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Sets a text only where it changed: a selection and a screen reader stay where they are. */
export function text(element, words) {
  if (element.textContent !== words) element.textContent = words;
}

/**
 * Makes the children of `parent` those of `items`, in order: an element is kept by its key, and made anew only where
 * its signature changed.
 */
export function sync(parent, items, key, signature, make) {
  const before = new Map();
  for (const child of parent.children) before.set(child.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    const now = signature(item);
    let element = before.get(name);
    before.delete(name);
    if (element === undefined || element.signature !== now) {
      const made = make(item);
      made.key = name;
      made.signature = now;
      if (element !== undefined) {
        const focused = element.contains(document.activeElement) ? document.activeElement : null;
        if (element === at) at = made;
        element.replaceWith(made);
        if (focused !== null) refocus(made, focused);
      }
      element = made;
    }
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const child of before.values()) {
    if (child === at) at = at.nextElementSibling;
    child.remove();
  }
}

/** The focus goes to what stands where it was: by data-focus, else the first that takes it. */
function refocus(made, focused) {
  const name = focused.dataset.focus;
  const found = name ? made.querySelector(`[data-focus="${CSS.escape(name)}"]`) : null;
  (found ?? made.querySelector("a, button, [tabindex]") ?? made).focus({ preventScroll: true });
}
