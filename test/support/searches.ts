/** Runs of `search` for tests of pages: samples with trees, as the command writes them, of made-up steps and scores. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ProblemResult, TreeStep } from '../../search/result.js';
import { DATE } from './results.js';

/** Numbers from 0 to 1, the same for a seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export interface MadeSearch {
  readonly n: number;
  readonly width: number;
  readonly iterations: number;
  readonly seed?: number;
  /** In place of a step's own text. */
  readonly text?: string;
}

/** A beam search: of each iteration the best survive, and some end. */
export function madeSearch({ n, width, iterations, seed = 1, text }: MadeSearch): ProblemResult {
  const random = randomOf(seed);
  const tree: TreeStep[] = [];
  let parents: (number | null)[] = Array.from({ length: n }, () => null);
  const completed: number[] = [];
  for (let iteration = 0; iteration < iterations && parents.length > 0; iteration++) {
    const first = tree.length;
    const isLast = iteration === iterations - 1;
    parents.forEach((parent, place) => {
      const score = random();
      tree.push({
        ...{ parent, iteration, text: text ?? `Step ${iteration + 1}, place ${place}.\n\n`, tokens: 12 },
        ...{ end: isLast ? 'eos' : 'step', scores: iteration + 1, last: score, aggregate: score },
        fate: isLast ? 'completed' : 'pruned',
      });
    });
    const order = parents.map((_, i) => first + i).sort((a, b) => tree[b]!.aggregate! - tree[a]!.aggregate!);
    const survivors = isLast ? [] : order.slice(0, Math.ceil(parents.length / width)).sort((a, b) => a - b);
    for (const i of survivors) tree[i] = { ...tree[i]!, fate: 'survives' };
    if (isLast) completed.push(...order);
    parents = survivors.flatMap((each) => Array.from({ length: width }, () => each)).slice(0, n);
  }
  const candidates = completed.map((step) => ({
    ...{ step, isCompleted: true, tokens: 12 * iterations, text: `The answer is ${step}.` },
    ...{ scores: [tree[step]!.last!], aggregate: tree[step]!.aggregate! },
  }));
  const drawn = { drawnSteps: tree.length, drawnTokens: 12 * tree.length };
  return { tree, candidates, picked: candidates.length > 0 ? 0 : null, ...drawn, notes: [] };
}

export interface MadeProblem {
  readonly problem?: string;
  readonly answer?: string;
  /** Absent: it could not be searched. */
  readonly search?: unknown;
  readonly isRight?: boolean;
}

/** Writes samples and results into `folder`, and returns it. */
export function writeSearch(
  folder: string,
  problems: readonly MadeProblem[],
  figures: object = {},
  asked: object = { method: 'beam', n: 16, width: 4 },
): string {
  mkdirSync(folder, { recursive: true });
  const lines = problems.map(({ problem = 'What is 1 + 1?', answer = '2', search, isRight = true }, i) => ({
    ...{ doc_id: i, doc: { id: String(i), problem, answer }, target: answer },
    arguments: { gen_args_0: { arg_0: problem, arg_1: asked } },
    ...{ resps: [['a text']], filtered_resps: ['a text'], filter: 'none', metrics: ['exact_match'] },
    exact_match: isRight ? 1 : 0,
    ...(search === undefined ? { error: 'the problem is longer than the context' } : { search }),
    answers: { answers: [answer, '<b>'], groups: [0, 1], right: [isRight, false], votes: [] },
  }));
  writeFileSync(join(folder, `samples_math_${DATE}.jsonl`), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  writeFileSync(
    join(folder, `results_${DATE}.json`),
    JSON.stringify({
      results: { math: { alias: 'math', sample_len: problems.length, ...figures } },
      configs: { math: { output_type: 'generate_until' } },
      model_name: 'made',
      higher_is_better: {},
      search: { asked },
    }),
  );
  return folder;
}
