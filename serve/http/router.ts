/** Finds the endpoint of a path. */
import type { Route } from '../exchange.js';

export interface RouteFound {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}

interface Pattern {
  readonly route: Route;
  readonly parts: readonly string[];
}

export class Router {
  private readonly exact = new Map<string, Route[]>();
  private readonly patterns: Pattern[] = [];

  constructor(routes: readonly Route[]) {
    for (const route of routes) {
      if (route.path.includes('/:')) this.patterns.push({ route, parts: route.path.split('/') });
      else this.exact.set(route.path, [...(this.exact.get(route.path) ?? []), route]);
    }
  }

  /** Endpoints of a path, whatever their methods. A part that is percent-encoded badly is no part. */
  find(path: string): readonly RouteFound[] {
    const exact = this.exact.get(path);
    if (exact !== undefined) return exact.map((route) => ({ route, params: {} }));
    const given = path.split('/');
    return this.patterns.flatMap(({ route, parts }) => {
      const params = match(parts, given);
      return params === undefined ? [] : [{ route, params }];
    });
  }
}

/** The last `:name` takes the rest of the path: names of models have slashes. */
function match(parts: readonly string[], given: readonly string[]): Record<string, string> | undefined {
  const isOpenEnded = parts.at(-1)?.startsWith(':') === true;
  if (given.length < parts.length || (!isOpenEnded && given.length > parts.length)) return undefined;
  const params = Object.create(null) as Record<string, string>;
  for (const [i, part] of parts.entries()) {
    const own = isOpenEnded && i === parts.length - 1 ? given.slice(i).join('/') : given[i]!;
    if (!part.startsWith(':')) {
      if (part !== own) return undefined;
      continue;
    }
    const value = decoded(own);
    if (value === undefined || value === '') return undefined;
    params[part.slice(1)] = value;
  }
  return params;
}

function decoded(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}
