// Elements. Text from outside becomes text nodes and attributes here, and nowhere HTML.

/**
 * Makes an element. Attributes that are functions are listeners (`onclick`), `true` is an attribute without a value, and
 * `false`, `null` and `undefined` are left out. Children are elements or text; `null` and `false` are left out.
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Characters that are not seen, or that turn the direction of the text around them. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** Writes characters that are not seen as `\u202e`, so that no name can look like another one. */
export function visible(text) {
  return String(text).replace(HIDDEN, (hidden) => "\\u" + hidden.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A name that a client has chosen. */
export const named = (text) => el("bdi", { class: "name" }, visible(text));

/** Text that a client has sent: lines stay, everything else that is not seen becomes visible. */
export function payload(text) {
  const lines = String(text).split("\n").map((line) => visible(line.replace(/\r$/, ""))).join("\n");
  return el("pre", { class: "payload", tabindex: "0" }, lines);
}

/** What can have the focus. */
const CONTROLS = "a, button, input, select, summary, textarea";

/**
 * Draws anew what is in an element. A control that has the focus keeps it: it is found again by the `data-part` of an
 * element around it, and by its number among the controls there.
 */
export function redraw(place, ...children) {
  const control = document.activeElement;
  const part = place.contains(control) ? control.closest("[data-part]") : null;
  const number = part && [...part.querySelectorAll(CONTROLS)].indexOf(control);
  place.replaceChildren(...children);
  const again = part && [...place.querySelectorAll("[data-part]")].find((one) => one.dataset.part === part.dataset.part);
  again?.querySelectorAll(CONTROLS)[number]?.focus({ preventScroll: true });
}

/** A labelled control of a form. */
export function field(label, control, hint) {
  return el("label", { class: "field" }, el("span", {}, label), control, hint && el("small", {}, hint));
}

/** A choice; each option is its value, or a pair of value and text. */
export function choice(attributes, options, chosen) {
  const option = (one) => {
    const [value, text] = Array.isArray(one) ? one : [one, one];
    return el("option", { value, selected: value === chosen }, text);
  };
  return el("select", attributes, options.map(option));
}

/** A form that sends: `submit` gets an object of the named values; while it runs, the form cannot be sent again. */
export function form(submit, action, ...children) {
  const button = el("button", { type: "submit", class: "primary" }, action);
  const sent = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await submit(Object.fromEntries(new FormData(element)), element);
    } catch (problem) {
      tell(problem.message, "problem");
    } finally {
      button.disabled = false;
    }
  };
  const element = el("form", { onsubmit: sent }, ...children, el("div", { class: "actions" }, button));
  return element;
}

/** A button, with text or elements, whose failure is told. */
export function button(label, act, attributes = {}) {
  const clicked = async () => {
    element.disabled = true;
    try {
      await act();
    } catch (problem) {
      tell(problem.message, "problem");
    } finally {
      element.disabled = false;
    }
  };
  const element = el("button", { type: "button", ...attributes, onclick: clicked }, label);
  return element;
}

/** A list of facts: pairs of name and value. Facts without a value are left out. */
export function facts(...pairs) {
  const known = pairs.filter(([, value]) => value != null && value !== false);
  return el("dl", { class: "facts" }, known.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A part of a page, with a heading. */
export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), ...children);
}

/** Tells the user what has happened. Screen readers say it as well. */
export function tell(text, kind = "done") {
  const place = document.getElementById("told");
  const message = el("p", { class: kind }, visible(text), " ");
  message.append(el("button", { type: "button", class: "quiet", "aria-label": "Close the message", onclick: () => message.remove() }, "×"));
  place.replaceChildren(message);
  if (kind === "done") setTimeout(() => message.remove(), 8000);
}

/** Asks the user before something that cannot be taken back. */
export function sure(question, action) {
  return new Promise((resolve) => {
    const answer = (yes) => () => {
      resolve(yes);
      dialog.close();
    };
    const dialog = el("dialog", { "aria-labelledby": "question", onclose: () => (dialog.remove(), resolve(false)) },
      el("p", { id: "question" }, visible(question)),
      el("div", { class: "actions" },
        el("button", { type: "button", class: "danger", onclick: answer(true) }, action),
        el("button", { type: "button", autofocus: true, onclick: answer(false) }, "Cancel")));
    document.body.append(dialog);
    dialog.showModal();
  });
}
