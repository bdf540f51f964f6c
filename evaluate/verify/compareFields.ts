/** Fields of results_*.json beside those that the run makes again. */
import { isRecord } from '../../system/json.js';
import { isSame } from './compareLines.js';

export interface FieldsDiffering {
  /** `results.mmlu.acc,none` */
  readonly path: string;
  readonly recorded: unknown;
  readonly computed: unknown;
}

const MAX_DEPTH = 30;

/** How many values were compared, and those that differ. Objects are compared key by key, lists as a whole. */
export function compareFields(
  recorded: unknown,
  computed: unknown,
  path: string,
): { readonly compared: number; readonly differing: readonly FieldsDiffering[] } {
  const differing: FieldsDiffering[] = [];
  let compared = 0;
  const visit = (found: unknown, wanted: unknown, at: string, depth: number): void => {
    if (isRecord(found) && isRecord(wanted) && depth < MAX_DEPTH) {
      for (const name of new Set([...Object.keys(wanted), ...Object.keys(found)])) {
        const of = (from: Readonly<Record<string, unknown>>): unknown =>
          Object.hasOwn(from, name) ? from[name] : undefined;
        visit(of(found), of(wanted), at === '' ? name : `${at}.${name}`, depth + 1);
      }
      return;
    }
    compared++;
    if (!isSame(found, wanted)) differing.push({ path: at, recorded: found, computed: wanted });
  };
  visit(recorded, computed, path, 0);
  return { compared, differing };
}
