/** The current place in the page, in the address behind `#`, so that a link leads there. `#questions?filter=wrong` */
import { useEffect, useState } from 'preact/hooks';

export interface Route {
  /** The name of a section; empty for the first. */
  readonly section: string;
  readonly state: Readonly<Record<string, string>>;
}

function parseRoute(hash: string): Route {
  const [section = '', query = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  return { section: decodeURIComponent(section), state: Object.fromEntries(new URLSearchParams(query)) };
}

export function hashOf({ section, state }: Route): string {
  const query = new URLSearchParams(Object.entries(state).filter(([, value]) => value !== '')).toString();
  return `#${encodeURIComponent(section)}${query === '' ? '' : `?${query}`}`;
}

const current = (): Route => {
  try {
    return parseRoute(location.hash);
  } catch {
    return { section: '', state: {} };
  }
};

export function useRoute(): Route {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const follow = (): void => setRoute(current());
    addEventListener('hashchange', follow);
    return () => removeEventListener('hashchange', follow);
  }, []);
  return route;
}

/** Changes the state of the section that is shown. What is typed or moved through leaves no trail of addresses. */
export function setState(patch: Readonly<Record<string, string>>, leavesTrail = false): void {
  const { section, state } = current();
  const hash = hashOf({ section, state: { ...state, ...patch } });
  if (hash === location.hash) return;
  if (leavesTrail) location.hash = hash;
  else {
    history.replaceState(null, '', hash);
    dispatchEvent(new HashChangeEvent('hashchange'));
  }
}
