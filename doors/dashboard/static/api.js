// Calls of the supervisor's methods over HTTP. The token goes in a header, and nowhere else.

const KEY = "pool-token";
const PATIENCE = 20_000;

/** What the supervisor refused, in its words. `status` 0: it could not be reached. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

function unreachable({ name }) {
  return new ApiError(0, "unreachable", name === "TimeoutError" ? "the supervisor did not answer in time" : "the supervisor cannot be reached");
}

/** The token of this tab: from `#token=` in the address, which is cleaned at once, or from before. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) {
    history.replaceState(null, "", location.pathname);
    if (given) keepToken(given);
  }
  return sessionStorage.getItem(KEY) ?? "";
}

/** Keep a token until the tab is closed; an empty one is forgotten. */
export function keepToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

/** One token's way to the supervisor. */
export class Api {
  #token;
  /** Seconds that the supervisor's clock is ahead of ours. */
  skew = 0;

  constructor(token) {
    this.#token = token;
  }

  /** Run a method; its result. `patience` in milliseconds. Throws ApiError. */
  async call(method, params = {}, patience = PATIENCE) {
    const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(params) };
    const response = await this.#fetch(`/api/${method}`, { ...request, signal: AbortSignal.timeout(patience) });
    this.#compareClocks(response);
    const body = await this.#read(response);
    if (response.ok) return body;
    const error = body?.error ?? {};
    throw new ApiError(response.status, error.code ?? "", error.message ?? `the supervisor answered ${response.status}`);
  }

  /** The stream of events after a bookmark, as a Response. */
  events(since, signal) {
    const after = since === null ? "" : `&since=${since}`;
    return this.#fetch(`/events?batch=true${after}`, { signal });
  }

  async #fetch(path, request) {
    const headers = { ...request.headers, authorization: `Bearer ${this.#token}` };
    try {
      return await fetch(path, { ...request, headers, cache: "no-store", credentials: "omit", redirect: "error" });
    } catch (error) {
      throw unreachable(error);
    }
  }

  async #read(response) {
    try {
      return await response.json();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw unreachable(error); // lost, or late, in the middle of its body
      throw new ApiError(response.status, "", `the supervisor answered ${response.status} with something that is no JSON`);
    }
  }

  #compareClocks(response) {
    const theirs = Date.parse(response.headers.get("date") ?? "") / 1000;
    const ahead = theirs - Date.now() / 1000;
    if (!Number.isNaN(ahead)) this.skew = Math.abs(ahead) < 2 ? 0 : ahead;
  }
}
