// Requests to the server that served this page.

const state = { token: sessionStorage.getItem("crabpath-token") ?? "", namespace: "", giver: null, rights: new Set(), opening: null };

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const session = {
  get namespace() {
    return state.namespace;
  },
  /** Who gives the feedback of this page: null without a token. */
  get giver() {
    return state.giver;
  },
  /** Whether the token grants a right. */
  may(right) {
    return state.rights.has(right);
  },
  /** Whether the server lets what somebody said be undone: what the sender said, or with the right admin all. */
  mayUndo({ user, token }) {
    return state.rights.has("feedback") && (state.rights.has("admin") || state.giver === null || user === state.giver || (token != null && `token ${token}` === state.giver));
  },
  setNamespace(name) {
    state.namespace = name;
  },
  setToken(token) {
    state.token = token;
    state.namespace = "";
    sessionStorage.setItem("crabpath-token", token);
  },
  /** Ask what the token grants. */
  open() {
    state.opening = get("session").then((granted) => {
      state.namespace ||= granted.namespace;
      state.giver = granted.giver;
      state.rights = new Set(granted.rights);
      return granted;
    });
    return state.opening;
  },
  /** Settled once the namespace is known. */
  get opening() {
    return state.opening;
  },
};

/** GET a path with parameters; those that are empty are left out. */
export function get(path, parameters = {}, namespace) {
  const known = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  const query = new URLSearchParams(known).toString();
  return send("GET", query ? `${path}?${query}` : path, undefined, namespace);
}

export function post(path, body, namespace) {
  return send("POST", path, body, namespace);
}

export function remove(path) {
  return send("DELETE", path);
}

/**
 * A function that waits for an answer, and gives null in its place once it was called again.
 * Answers may come in another order than they were asked for; only the last is shown.
 */
export function makeLatest() {
  let last = 0;
  return async (answer) => {
    const own = (last += 1);
    const found = await answer;
    return own === last ? found : null;
  };
}

/** POST a question; tells each hop while the walk goes on, and returns the answer. */
export async function ask(body, onHop) {
  const response = await request("POST", "query", body, undefined, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    text += value ?? "";
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const [name, data] = parseEvent(text.slice(0, end));
      text = text.slice(end + 2);
      if (name === "hop") onHop(data);
      else if (name === "answer") return data;
      else if (name === "error") throw new RequestError(data.status, data.detail);
    }
    if (done) throw new RequestError(0, "the answer broke off: ask again");
  }
}

function parseEvent(block) {
  const fields = block.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).trimStart()]);
  const data = fields.filter(([field]) => field === "data").map(([, value]) => value).join("\n");
  return [fields.find(([field]) => field === "event")?.[1], data ? JSON.parse(data) : null];
}

async function send(method, path, body, namespace) {
  const response = await request(method, path, body, namespace);
  return response.json();
}

async function request(method, path, body, namespace, accept = "application/json") {
  const headers = { Accept: accept };
  if (/[^\x20-\x7e]/.test(state.token ?? "")) throw new RequestError(401, "This is no token: tokens have no such letters.");
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const chosen = namespace ?? state.namespace;
  if (chosen) headers["CrabPath-Namespace"] = encodeURIComponent(chosen);
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(`v1/${path}`, document.baseURI), {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), redirect: "error",
    });
  } catch {
    throw new RequestError(0, "The server does not answer: is it still running?");
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw new RequestError(response.status, answer?.detail ?? `The server answered ${response.status}.`);
}
