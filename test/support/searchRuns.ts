/**
 * Searches with small models of the data folder beside the repository, and what a naive reference gives for them: one
 * problem, one path and one request at a time, each of an engine of its own, which knows no pages.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { engineModelOf } from '../../commands/engineModel.js';
import { beginLoading, type LoadedModel } from '../../commands/loadModel.js';
import { gradeProblem } from '../../commands/searchFigures.js';
import { type SearchEngine, searchPorts } from '../../commands/searchModels.js';
import { readProblems } from '../../commands/searchProblems.js';
import type { SearchRequest } from '../../commands/searchRequest.js';
import { Phases } from '../../driver/phases.js';
import { Engine } from '../../engine/engine.js';
import type { EngineRequest } from '../../engine/request.js';
import type { SearchOptions } from '../../search/options.js';
import { planSearch } from '../../search/plan.js';
import { defined } from '../../system/defined.js';
import { isRecord } from '../../system/json.js';
import { naiveSearch } from '../search/naiveSearch.js';
import { SILENT } from './silent.js';

export const LOAD = { init: { kind: 'checkpoint' as const }, precision: 'f32' as const, target: 'cpu' as const };
const REFERENCE_TOKENS = 2048;

/** Steps end at a frequent letter, after a few tokens, or at one of many end tokens, so that all ends occur. */
export const OPTIONS: SearchOptions = {
  method: 'beam',
  n: 4,
  width: 2,
  iterations: 4,
  temperature: 1,
  seed: 11,
  stepStop: 'e',
  maxStepTokens: 8,
  system: 'none',
};

/** A folder in `parent` with a copy of a generator, every 25th of whose tokens ends a text. */
export function endingGenerator(from: string, parent: string): string {
  const folder = join(parent, 'generator');
  mkdirSync(folder);
  for (const name of readdirSync(from)) if (name !== 'config.json') symlinkSync(join(from, name), join(folder, name));
  const config = JSON.parse(readFileSync(join(from, 'config.json'), 'utf8')) as Record<string, unknown>;
  const ends = Array.from({ length: 60 }, (_, i) => 40 + 25 * i);
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, eos_token_id: [2, ...ends] }));
  return folder;
}

/** Different lengths, so that problems are not in step. */
export const problemLines = (count: number): readonly Record<string, unknown>[] =>
  Array.from({ length: count }, (_, i) => ({
    id: `p${i}`,
    problem: `What is ${i} and ${'one and '.repeat(i % 5)}one?`,
    answer: String(i + 1 + (i % 5)),
  }));

export function writeProblems(folder: string, lines: readonly Record<string, unknown>[], name = 'problems'): string {
  const path = join(folder, `${name}.jsonl`);
  writeFileSync(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  return path;
}

/** Fields in the order of their names. */
const sorted = (_: string, value: unknown): unknown =>
  isRecord(value) ? Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1))) : value;

/** Of what the lines of samples hold, whatever order they and their fields are in. */
export function hashOf(lines: readonly Record<string, unknown>[]): string {
  const texts = lines.map(({ doc, search, answers, error }) => JSON.stringify({ doc, search, answers, error }, sorted));
  return createHash('sha256').update(texts.toSorted().join('\n')).digest('hex');
}

/** The samples in a folder of results. */
export function samplesIn(folder: string): readonly Record<string, unknown>[] {
  const [model = ''] = readdirSync(folder).filter((name) => !name.startsWith('.'));
  const names = readdirSync(join(folder, model)).filter((name) => name.startsWith('samples_'));
  if (names.length !== 1) throw new Error(`${folder} has ${names.length} files of samples`);
  const text = readFileSync(join(folder, model, names[0]!), 'utf8');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** An engine whose every request has nothing to find. */
function forgetful(models: ReadonlyMap<string, LoadedModel>): SearchEngine {
  const engineFor = (name: string | undefined): Engine => {
    const engine = new Engine();
    engine.load(name ?? '', engineModelOf(models.get(name ?? '')!));
    return engine;
  };
  return {
    submit: <R extends EngineRequest>(request: R) => engineFor(request.model).submit(request),
    discard: () => undefined,
    limitsOf: (name) => engineFor(name).limitsOf(name),
    roomsOf: (name) => engineFor(name).roomsOf(name),
  };
}

type Place = Pick<SearchRequest, 'init' | 'precision' | 'target' | 'threads'>;
type Asked = Place & Pick<SearchRequest, 'model' | 'verifier' | 'options' | 'problems'>;

const placeOf = ({ init, precision, target, threads }: Place) => ({
  ...{ init, precision, threads },
  ...defined({ target }),
});

/** What samples are to hold, by the naive reference. */
export async function naiveSamples({
  model,
  verifier,
  options,
  problems: source,
  ...place
}: Asked): Promise<readonly Record<string, unknown>[]> {
  const load = (path: string): Promise<LoadedModel> =>
    beginLoading({ ...placeOf(place), model: path, cacheTokens: REFERENCE_TOKENS }, SILENT, new Phases()).finish();
  const generator = await load(model);
  const judging = await load(verifier!.model);
  const engine = forgetful(
    new Map([
      ['generator', generator],
      ['verifier', judging],
    ]),
  );
  const { writer, judge, close } = await searchPorts(
    engine,
    { loaded: generator, name: 'generator' },
    { loaded: judging, name: 'verifier' },
    { options },
  );
  try {
    const { n, isSal } = planSearch(options, judge?.kind);
    const lines: Record<string, unknown>[] = [];
    const { problems } = await readProblems(source, undefined);
    for (const [index, { problem, beside }] of problems.entries()) {
      const result = { ...(await naiveSearch(problem, writer, judge, options)), notes: [] };
      const { answers } = gradeProblem({ index, problem, result }, n, isSal);
      lines.push({ doc: { ...beside, ...problem }, search: result, answers });
    }
    return lines;
  } finally {
    await close();
    await generator.close();
    await judging.close();
  }
}

/** Lines without notes, which the reference does not make. */
export const withoutNotes = (lines: readonly Record<string, unknown>[]): readonly Record<string, unknown>[] =>
  lines.map((line) => ({ ...line, search: { ...(line['search'] as object), notes: [] } }));
