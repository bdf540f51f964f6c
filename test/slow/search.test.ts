/**
 * One hash of a search's results over whatever may change when and where it is computed: problems at once, splits of
 * memory, devices, order, preemption, speculation, sizes of calls, and kills. And what a naive reference gives, for
 * every method.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import type * as Search from '../../commands/search.js';
import type { SearchRequest, SearchSummary } from '../../commands/searchRequest.js';
import type { SearchOptions } from '../../search/options.js';
import { randomOf } from '../fuzz/mutate.js';
import { SILENT } from '../support/silent.js';
import {
  endingGenerator,
  hashOf,
  LOAD,
  naiveSamples,
  OPTIONS,
  problemLines,
  samplesIn,
  withoutNotes,
  writeProblems,
} from '../support/searchRuns.js';
import {
  environment,
  isBuilt,
  isOver,
  journalReaches,
  journalSize,
  ROOT,
  start,
  temporaryFolder,
} from '../e2e/support.js';

const VERIFIERS = join(ROOT, '..', 'shared', 'checkpoints', 'verifiers');
const DEMO = join(ROOT, 'models', 'demo');
const hasModels = existsSync(VERIFIERS);
const LINES = problemLines(20);
const SMALL = problemLines(3);

describe.skipIf(!hasModels || !isBuilt)('a search', () => {
  let asked: SearchRequest;
  let wanted = '';
  /** As built: several devices are processes of what is built. */
  let search: typeof Search.search;
  const file = (lines: readonly Record<string, unknown>[]): SearchRequest['problems'] => ({
    kind: 'file',
    path: writeProblems(temporaryFolder(), lines),
  });

  beforeAll(async () => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
    ({ search } = (await import(pathToFileURL(join(ROOT, 'dist', 'commands', 'search.js')).href)) as typeof Search);
    asked = {
      ...LOAD,
      model: endingGenerator(join(VERIFIERS, 'rlhflow-prm'), temporaryFolder()),
      verifier: { model: join(VERIFIERS, 'qwen-prm') },
      problems: file(LINES),
      options: OPTIONS,
      resume: false,
      threads: 1,
    };
    wanted = hashOf(await naiveSamples(asked));
  }, 600_000);

  const searched = async (more: Partial<SearchRequest>) => {
    const output = temporaryFolder();
    const summary = (await search({ ...asked, ...more, output }, SILENT)) as SearchSummary;
    return { summary, hash: hashOf(withoutNotes(samplesIn(output))) };
  };

  const two = { replicas: 2, stages: 1 } as const;
  const speculating = (speculate: SearchOptions['speculate']) => ({ options: { ...OPTIONS, speculate } });
  const CONFIGURATIONS: readonly (readonly [string, () => Partial<SearchRequest>])[] = [
    ['all at once', () => ({})],
    ['1 at once', () => ({ atOnce: 1 })],
    ['3 at once', () => ({ atOnce: 3 })],
    ['8 at once', () => ({ atOnce: 8 })],
    ['128 at once', () => ({ atOnce: 128 })],
    ...[0.08, 0.2, 0.3, 0.5, 0.9].map(
      (memorySplit) => [`split ${memorySplit}`, () => ({ memorySplit, memory: 16 << 20 })] as const,
    ),
    ['little memory that moves', () => ({ memory: 8 << 20 })],
    ['two devices', () => ({ parallel: two })],
    ['two devices, 1 at once', () => ({ parallel: two, atOnce: 1 })],
    [
      'two devices, split and shuffled',
      () => ({ parallel: two, memorySplit: 0.3, problems: file(LINES.toReversed()) }),
    ],
    ['shuffled', () => ({ problems: file(LINES.toSorted((a, b) => Number(a['answer']) - Number(b['answer']))) })],
    ['speculation', () => speculating('on')],
    ['no speculation', () => speculating('off')],
    ['speculation on two devices', () => ({ ...speculating('on'), parallel: two, atOnce: 4 })],
    ['small calls', () => ({ batchTokens: 32 })],
    ['large calls', () => ({ batchTokens: 2048 })],
    ['two threads', () => ({ threads: 2 })],
    ['few pages', () => ({ cacheTokens: 128 })],
    ['few pages and speculation', () => ({ cacheTokens: 144, ...speculating('on') })],
  ];

  it.each(CONFIGURATIONS)('gives one hash: %s', { timeout: 600_000 }, async (_, more) => {
    expect((await searched(more())).hash).toBe(wanted);
  });

  it('gives one hash where sequences give their pages back again and again', { timeout: 600_000 }, async () => {
    const { stepStop: _, ...rest } = OPTIONS;
    const options: SearchOptions = { ...rest, n: 8, stepTokens: 6, ignoreEos: true };
    const calm = await searched({ options });
    // A path of a problem and its scores just fit; eight do not.
    const forced = await searched({ options, cacheTokens: 160 });
    expect([calm.summary.generator.preemptions, forced.summary.generator.preemptions > 0]).toEqual([0, true]);
    expect(forced.hash).toBe(calm.hash);
  });

  it('gives one hash through 20 kills', { timeout: 1_800_000 }, async () => {
    const output = temporaryFolder();
    const { model, verifier, problems } = asked;
    const flags: readonly string[] = [
      ...['search', model, '--verifier', verifier!.model, '--problems', problems.kind === 'file' ? problems.path : ''],
      ...['--n', '4', '--width', '2', '--iterations', '4', '--temperature', '1', '--seed', '11', '--step-stop', 'e'],
      ...['--max-step-tokens', '8', '--system', 'none', '--precision', 'f32', '--target', 'cpu', '--threads', '1'],
      ...['--out', output, '--at-once', '1'],
    ];
    const random = randomOf(7);
    let kills = 0;
    for (; kills < 20 && !isOver(output); kills++) {
      const running = start([...flags, '--resume']);
      // Now while it loads, now in the middle of a problem, now behind one.
      const bytes = kills % 2 === 0 ? 0 : journalSize(output) + 1;
      await journalReaches(running, output, bytes);
      await sleep(random() * (bytes === 0 ? 1000 : 20));
      running.process.kill('SIGKILL');
      await running.ended;
    }
    expect(kills).toBe(20);
    const last = await start([...flags, '--resume']).ended;
    expect([last.status, last.stderr]).toEqual([0, expect.stringContaining('taken over from')]);
    expect(hashOf(withoutNotes(samplesIn(output)))).toBe(wanted);
  });

  const METHODS: readonly (readonly [string, Partial<SearchRequest> & { readonly options: SearchOptions }])[] = [
    ['best-of-n', { options: { ...OPTIONS, method: 'best-of-n', maxStepTokens: 30 } }],
    ['weighted, early', { options: { ...OPTIONS, method: 'weighted', maxStepTokens: 30, earlyStop: true } }],
    ['dvts with lookahead', { options: { ...OPTIONS, method: 'dvts', lookahead: 1 } }],
    ['rebase', { options: { ...OPTIONS, method: 'rebase', aggregate: 'prod' } }],
    ['every second step', { options: { ...OPTIONS, every: 2, aggregate: 'min', filterDuplicates: true } }],
    ['numbers of tokens', { options: { ...OPTIONS, stepStop: undefined, stepTokens: 5 } as SearchOptions }],
    ['a language model as verifier', { verifier: { model: join(VERIFIERS, 'rlhflow-prm') }, options: OPTIONS }],
    ['another language model', { verifier: { model: join(VERIFIERS, 'math-shepherd-prm') }, options: OPTIONS }],
    ['steps in lines', { verifier: { model: join(VERIFIERS, 'skywork-prm') }, options: OPTIONS }],
    [
      'an outcome model',
      { verifier: { model: join(VERIFIERS, 'llama-seqcls') }, options: { ...OPTIONS, method: 'best-of-n' } },
    ],
    ['another tokenizer', { model: DEMO, options: { ...OPTIONS, temperature: 2 } }],
  ];

  it.each(METHODS)('gives what the naive reference gives: %s', { timeout: 600_000 }, async (_, more) => {
    const request = { ...asked, ...more, problems: file(SMALL) };
    const { hash } = await searched(request);
    expect(hash).toBe(hashOf(await naiveSamples(request)));
  });

  it('refuses a verifier of whole answers that is to guide steps before it loads anything', async () => {
    const phases: string[] = [];
    const ui = { ...SILENT, phase: (name: string) => void phases.push(name) };
    const request = { ...asked, verifier: { model: join(VERIFIERS, 'llama-seqcls') }, output: temporaryFolder() };
    await expect(search(request, ui)).rejects.toThrow('judges whole answers and cannot guide beam');
    expect(phases).toEqual([]);
  });

  const families = join(VERIFIERS, '..', 'families');
  it.each(['qwen3.5', 'qwen3-next', 'lfm2', 'mamba2', 'deepseek-v2', 'gpt-oss'])(
    'gives what the naive reference gives where %s writes: alone, together, with few pages, ahead',
    { timeout: 600_000 },
    async (family) => {
      const request = { ...asked, model: join(families, family), problems: file(SMALL) };
      const reference = hashOf(await naiveSamples(request));
      const others = [{}, { atOnce: 1 }, { cacheTokens: 128 }, { ...speculating('on'), parallel: two }];
      for (const more of others) expect((await searched({ ...request, ...more })).hash).toBe(reference);
    },
  );
});
