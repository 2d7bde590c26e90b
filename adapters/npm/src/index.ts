/** A client of a CrabPath server, with the paths, bodies and answers of its description. */
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

/** A body or answer by its name in the description, such as `Schema<"QueryAnswer">`. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface Options {
  /** The secret of `crabpath token create`; without one only a server of this machine answers. */
  token?: string;
  /** Another namespace of the token than its first. */
  namespace?: string;
}

/** Connect to a server, such as `http://127.0.0.1:8765`. */
export function connect(address: string, { token, namespace }: Options = {}): Client<paths> {
  const headers: Record<string, string> = {};
  if (token) headers["Authorization"] = `Bearer ${token}`;
  if (namespace) headers["CrabPath-Namespace"] = encodeURIComponent(namespace);
  return createClient<paths>({ baseUrl: address, headers });
}
