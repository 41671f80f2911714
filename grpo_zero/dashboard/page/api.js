/** Asks the server. */

/** The answer to a question under /api/; an Error with the server's sentence where there is none. */
export async function ask(route, parameters = {}, signal = undefined) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined) words.append(name, value);
  }
  const reply = await fetch(`api/${route}?${words}`, { signal });
  const found = await reply.json().catch(() => ({ error: `The server answered with ${reply.status}.` }));
  if (!reply.ok) throw new Error(found.error ?? `The server answered with ${reply.status}.`);
  return found;
}
