/** Pages of other sites, which a browser lets ask a server of this machine where their name leads to it. */

const isLoopbackName = (name: string): boolean =>
  name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);

/** Whether a server that listens there is reached by programs of its own machine only. */
export const isLoopbackHost = (host: string): boolean => host === '::1' || isLoopbackName(host);

/** Whether a page is of this machine, by the Origin that a browser names. */
export function isLoopbackOrigin(origin: string): boolean {
  try {
    return isLoopbackName(new URL(origin).hostname);
  } catch {
    return false;
  }
}
