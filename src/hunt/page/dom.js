// Elements in one line: a tag, its properties, and what is in it.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") element.className = value;
    else if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// Writes a text if it has changed: a screen reader reads again what is written again.
export function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}
