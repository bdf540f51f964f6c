/** A problem that was searched, from its line of samples: what a page shows of its tree. The file is untrusted. */
import type { Block } from '../../evaluate/compare/findRuns.js';
import { readResult } from '../../search/readResult.js';
import type { ProblemResult, TreeStep } from '../../search/result.js';
import { defined } from '../../system/defined.js';
import { isRecord } from '../../system/json.js';
import { likelihood } from '../document/questions.js';
import type { ShownStep, ShownTree } from '../document/search.js';

/** Steps of a problem that a page shows, and characters of a step and of a problem. */
const MAX_STEPS = 4000;
const MAX_TEXT = 1 << 13;
const MAX_PROBLEM = 1 << 16;
const MAX_CANDIDATES = 4096;
const MAX_NOTES = 40;
/** Numbers and names of a step, as JSON. */
const STEP_CHARACTERS = 120;
const SNIPPET = 200;

/** What the first reading of a sample keeps of its search: the rest is read again, block by block. */
export interface SearchSize {
  readonly steps: number;
  readonly candidates: number;
  readonly characters: number;
  readonly text: string;
}

/** Undefined for a sample without a search; `unread` for one whose search is not as it is written. */
export function searchSizeOf(sample: Block): SearchSize | 'unread' | undefined {
  if (sample['search'] === undefined) return undefined;
  const result = readResult(sample['search']);
  if (result === undefined) return 'unread';
  const { tree, candidates } = result;
  const shown = tree.slice(0, MAX_STEPS);
  const characters = shown.reduce((sum, { text }) => sum + Math.min(text.length, MAX_TEXT) + STEP_CHARACTERS, 0);
  const text = problemOf(sample).slice(0, SNIPPET).replace(/\s+/g, ' ').trim();
  return { steps: tree.length, candidates: candidates.length, characters, text };
}

/** The document's own text, else that of the request. */
function problemOf({ doc, arguments: asked }: Block): string {
  const own = isRecord(doc) ? (doc['problem'] ?? doc['question']) : undefined;
  if (typeof own === 'string') return own;
  const first = isRecord(asked) ? asked['gen_args_0'] : undefined;
  const text = isRecord(first) ? first['arg_0'] : undefined;
  return typeof text === 'string' ? text : '';
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** A problem as a page holds it: cut where it is more than a page can show. */
export function shownTree(sample: Block, { tree, candidates, picked, notes }: ProblemResult): ShownTree {
  let cut = 0;
  const within = (text: string, most: number): string => {
    cut += Math.max(0, text.length - most);
    return text.slice(0, most);
  };
  const stepOf = ({ scores: _, last, aggregate, text, ahead, error, subtree, ...step }: TreeStep): ShownStep => ({
    ...step,
    text: within(text, MAX_TEXT),
    ...defined({ subtree, ahead: ahead === undefined ? undefined : within(ahead, MAX_TEXT), error }),
    ...defined({ last: last === undefined ? undefined : likelihood(last) }),
    ...defined({ aggregate: aggregate === undefined ? undefined : likelihood(aggregate) }),
  });
  const steps = tree.slice(0, MAX_STEPS).map(stepOf);
  const said = isRecord(sample['answers']) ? sample['answers'] : {};
  const [answers, right] = [listOf(said['answers']), listOf(said['right'])];
  const shown = candidates.flatMap(({ step, isCompleted, aggregate, tokens }, i) => {
    const answer = answers[i];
    if (step >= steps.length || i >= MAX_CANDIDATES) return [];
    const told = {
      answer: typeof answer === 'string' ? within(answer, MAX_TEXT) : undefined,
      isRight: typeof right[i] === 'boolean' ? right[i] : undefined,
    };
    return [{ i, of: { step, isCompleted, aggregate: likelihood(aggregate), tokens, ...defined(told) } }];
  });
  const at = shown.findIndex(({ i }) => i === picked);
  const { target } = sample;
  return {
    problem: within(problemOf(sample), MAX_PROBLEM),
    target: typeof target === 'string' ? within(target, MAX_TEXT) : '',
    steps,
    left: tree.length - steps.length,
    candidates: shown.map(({ of }) => of),
    picked: at < 0 ? null : at,
    notes: notes.slice(0, MAX_NOTES),
    cut,
  };
}
