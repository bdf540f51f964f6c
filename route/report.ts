/** Reports as they come from elsewhere: whatever is in them, what is taken of them is whole, finite and bounded. */
import { type HeldAdapter, POLICY_LIMITS, type ReplicaReport } from './policy.js';

export interface CheckedReport {
  readonly base: string;
  readonly adapters: readonly Required<HeldAdapter>[];
  readonly slots: number;
  readonly maxRunning: number | undefined;
  readonly running: number;
  readonly waiting: number;
  readonly queueTokens: number;
}

/** A whole number from 0 to `most`; `otherwise` for what is none. */
export const countOf = (value: unknown, most: number, otherwise: number): number =>
  typeof value === 'number' && Number.isFinite(value) ? Math.min(most, Math.max(0, Math.floor(value))) : otherwise;

/** A name that can be kept: not empty, and not longer than names are. */
export const isName = (value: unknown): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= POLICY_LIMITS.nameCharacters;

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null;

/** Undefined where not even the base is said. Of one adapter that is named twice, the first counts. */
export function checkReport(report: ReplicaReport): CheckedReport | undefined {
  const given: unknown = report;
  if (!isObject(given) || !isName(given['base'])) return undefined;
  const { requests, tokens, slots } = POLICY_LIMITS;
  const maxRunning = countOf(given['maxRunning'], requests, 0);
  return {
    base: given['base'],
    adapters: adaptersOf(given['adapters']),
    slots: countOf(given['slots'], slots, 0),
    maxRunning: maxRunning > 0 ? maxRunning : undefined,
    running: countOf(given['running'], requests, 0),
    waiting: countOf(given['waiting'], requests, 0),
    queueTokens: countOf(given['queueTokens'], tokens, 0),
  };
}

function adaptersOf(given: unknown): Required<HeldAdapter>[] {
  if (!Array.isArray(given)) return [];
  const found: Required<HeldAdapter>[] = [];
  for (const each of given.slice(0, POLICY_LIMITS.reported) as readonly unknown[]) {
    if (!isObject(each) || !isName(each['name']) || !isName(each['revision'])) continue;
    found.push({
      name: each['name'],
      revision: each['revision'],
      isResident: each['isResident'] !== false,
      requests: countOf(each['requests'], POLICY_LIMITS.requests, 0),
    });
  }
  return found;
}
