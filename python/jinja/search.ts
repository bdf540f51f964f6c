/**
 * Where a text holds another one. The engine's own search takes as many steps as both lengths multiplied, and nothing
 * can stop it on the way: longer parts are looked for as Knuth, Morris and Pratt do, in time of both lengths added.
 */
import type { Work } from './work.js';

/** Parts of up to so many letters are left to the engine. */
const SHORT = 16;

/** The first place of the part at `from` or behind it; -1 where there is none. */
export type Search = (text: string, from?: number) => number;

/** At each place of the part, the length of its longest beginning that ends there and is shorter. */
function borders(length: number, unit: (at: number) => number): Int32Array {
  const made = new Int32Array(length);
  for (let at = 1, matched = 0; at < length; at++) {
    while (matched > 0 && unit(at) !== unit(matched)) matched = made[matched - 1]!;
    if (unit(at) === unit(matched)) matched++;
    made[at] = matched;
  }
  return made;
}

/** What finds `part`, which is not empty. */
export function searchFor(part: string, work: Work): Search {
  if (part.length <= SHORT)
    return (text, from = 0) => {
      const at = text.indexOf(part, from);
      work.spend(((at < 0 ? text.length : at) - from) / 64);
      return at;
    };
  work.spend(part.length / 8);
  const longest = borders(part.length, (at) => part.charCodeAt(at));
  return (text, from = 0) => {
    if (text.length - from < part.length) return -1;
    work.spend((text.length - from) / 64);
    // Most texts do not hold even the beginning.
    const first = text.indexOf(part.slice(0, SHORT), from);
    if (first < 0) return -1;
    let matched = 0;
    for (let at = first; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      while (matched > 0 && unit !== part.charCodeAt(matched)) matched = longest[matched - 1]!;
      if (unit === part.charCodeAt(matched)) matched++;
      if (matched === part.length) {
        work.spend((at - first) / 16);
        return at + 1 - part.length;
      }
    }
    work.spend((text.length - first) / 16);
    return -1;
  };
}

/** What finds the last place of `part`, which is not empty, that ends at `to` or before. */
export function searchBackFor(part: string, work: Work): (text: string, to?: number) => number {
  if (part.length <= SHORT)
    return (text, to = text.length) => {
      const at = to < part.length ? -1 : text.lastIndexOf(part, to - part.length);
      work.spend((to - Math.max(0, at)) / 64);
      return at;
    };
  work.spend(part.length / 8);
  const last = part.length - 1;
  const longest = borders(part.length, (at) => part.charCodeAt(last - at));
  return (text, to = text.length) => {
    let matched = 0;
    for (let at = to - 1; at >= 0; at--) {
      const unit = text.charCodeAt(at);
      while (matched > 0 && unit !== part.charCodeAt(last - matched)) matched = longest[matched - 1]!;
      if (unit === part.charCodeAt(last - matched)) matched++;
      if (matched === part.length) {
        work.spend((to - at) / 16);
        return at;
      }
    }
    work.spend(Math.max(0, to) / 16);
    return -1;
  };
}
