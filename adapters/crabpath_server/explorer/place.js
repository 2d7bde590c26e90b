// The address: #/NAMESPACE/VIEW/ARGUMENT?OPTIONS, so that a reload, or a colleague, sees the same.

import { session } from "./api.js";

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The parts of the address; what it does not name is empty. */
export function readPlace() {
  const [path, options] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [namespace = "", view = "", argument = ""] = path.split("/").map(decode);
  return { namespace, view, argument, options: new URLSearchParams(options ?? "") };
}

/** The address of a view of the namespace; options that are empty are left out. */
export function linkTo(view, argument = "", options = {}) {
  const parts = [session.namespace, view, ...(argument ? [argument] : [])].map(encodeURIComponent);
  const chosen = new URLSearchParams(Object.entries(options).filter(([, value]) => value !== "" && value !== false && value != null)).toString();
  return `#/${parts.join("/")}${chosen ? `?${chosen}` : ""}`;
}

export function goTo(view, argument, options) {
  location.hash = linkTo(view, argument, options);
}

/** Write down what is shown now, without showing it again; Back leads to what was shown before. */
export function addPlace(view, argument, options) {
  history.pushState(null, "", linkTo(view, argument, options));
}

/** Write down what is shown, without showing it again. */
export function keepPlace(view, argument, options) {
  history.replaceState(null, "", linkTo(view, argument, options));
}
