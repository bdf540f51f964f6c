/** A recorded sample beside the one that its document and its answers make. */
import { isRecord } from '../../system/json.js';
import type { Response } from '../../tasks/scores/metrics.js';
import type { CheckName } from './findings.js';
import { sampleOf } from './recordedSamples.js';

export type Sample = Readonly<Record<string, unknown>>;

/** A field of a sample that is not what it should be. */
export interface FieldDifference {
  readonly check: CheckName;
  readonly field: string;
  readonly recorded: unknown;
  readonly computed: unknown;
}

/** What a document is made of; all other fields follow from the answers. */
const OF_DATA: ReadonlySet<string> = new Set([
  ...['doc_id', 'doc', 'target', 'arguments', 'doc_hash', 'prompt_hash', 'target_hash', 'filter'],
]);

const checkOf = (field: string): CheckName => (OF_DATA.has(field) ? 'data' : field === 'resps' ? 'samples' : 'metrics');

/** Equal values, whatever the order of keys. NaN equals itself, and 0 is not -0. */
export function isSame(a: unknown, b: unknown): boolean {
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((each, i) => isSame(each, b[i]));
  if (!isRecord(a)) return Object.is(a, b);
  if (!isRecord(b)) return false;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && isSame(a[name], b[name]))
  );
}

/** Of what documents are made, and their hashes. */
export interface HashesInLine {
  readonly document: string;
  readonly prompt: string;
  readonly target: string;
}

/** Whether a line holds what its own hashes say. One that does was made of other data, or was edited with care. */
const isCoherent = (found: Sample, hashes: HashesInLine | undefined): boolean =>
  hashes !== undefined &&
  found['doc_hash'] === hashes.document &&
  found['prompt_hash'] === hashes.prompt &&
  found['target_hash'] === hashes.target;

/**
 * The fields in which a line is not the one that it should be: none where the two are equal to the byte. `hashed`: the
 * hashes of what a line holds, undefined where it does not hold it.
 */
export function compareLines(
  recorded: string,
  computed: string,
  hashed: (line: string) => HashesInLine | undefined,
): readonly FieldDifference[] {
  if (recorded === computed) return [];
  const [found, wanted] = [sampleOf(recorded) ?? {}, sampleOf(computed) ?? {}];
  const names = [...new Set([...Object.keys(wanted), ...Object.keys(found)])];
  const of = (sample: Sample, name: string): unknown => (Object.hasOwn(sample, name) ? sample[name] : undefined);
  const differing = names
    .filter((name) => !isSame(of(found, name), of(wanted, name)))
    .map((field) => ({
      ...{ check: checkOf(field), field },
      ...{ recorded: of(found, field), computed: of(wanted, field) },
    }));
  if (differing.some(({ check }) => check === 'data') && !isCoherent(found, hashed(recorded)))
    return differing.map((each) => (each.check === 'data' ? { ...each, check: 'samples' } : each));
  // The same values in other words: spaces, another order of keys, a number with other digits, a key that comes twice.
  return differing.length > 0
    ? differing
    : [{ check: 'samples', field: 'the text of the line', recorded: recorded.length, computed: computed.length }];
}

const isPair = (value: unknown): value is readonly [string, string] =>
  Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === 'string');

/** A log-likelihood as text; undefined where it is no finite number. */
function numberIn(text: unknown): number | undefined {
  const number = typeof text === 'string' && text.length <= 40 && text.trim() !== '' ? Number(text) : NaN;
  return Number.isFinite(number) ? number : undefined;
}

function responseIn(value: unknown, isTexts: boolean): Response | undefined {
  if (isTexts) return typeof value === 'string' ? value : undefined;
  // A text that is scored as a whole has only its likelihood.
  const [number, greedy] = isPair(value) ? value : [value, 'False'];
  const ll = numberIn(number);
  return ll === undefined || (greedy !== 'True' && greedy !== 'False')
    ? undefined
    : { ll, isGreedy: greedy === 'True' };
}

/** What a sample says was answered: for each request, one answer for each repeat. Undefined where it is damaged. */
export function answersIn(
  sample: Sample | undefined,
  { requests, isTexts }: { readonly requests: number; readonly isTexts: boolean },
): readonly (readonly Response[])[] | undefined {
  const given = sample?.['resps'];
  if (!Array.isArray(given) || given.length !== requests) return undefined;
  const answers: Response[][] = [];
  for (const all of given as readonly unknown[]) {
    if (!Array.isArray(all) || all.length === 0) return undefined;
    const found = (all as readonly unknown[]).map((each) => responseIn(each, isTexts));
    if (found.includes(undefined)) return undefined;
    answers.push(found as Response[]);
  }
  return answers;
}
