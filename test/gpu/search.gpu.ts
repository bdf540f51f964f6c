/**
 * Searches on a real device: one hash of their results over problems at once, splits of memory, order, preemption,
 * speculation and, where there are two devices, both; and the hash of a naive reference, whose requests find no pages.
 */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { join } from 'node:path';
import { search } from '../../commands/search.js';
import type { SearchRequest, SearchSummary } from '../../commands/searchRequest.js';
import type { SearchOptions } from '../../search/options.js';
import {
  endingGenerator,
  hashOf,
  naiveSamples,
  OPTIONS,
  problemLines,
  samplesIn,
  withoutNotes,
  writeProblems,
} from '../support/searchRuns.js';
import { SILENT } from '../support/silent.js';
import { deviceHere, SHARED, skipWithout } from './device.js';
import { temporaryFolder } from './support.js';

const device = await deviceHere();
const VERIFIERS = join(SHARED, 'checkpoints', 'verifiers');
const skip = skipWithout(device.skip, VERIFIERS, 'small verifiers');
const devices = device.available.ok ? device.available.devices.length : 0;

const LINES = problemLines(32);
const MEMORY = 512 << 20;
/** Of the whole file: one that is made in a hook ends with it. */
const FOLDER = temporaryFolder();

describe('searches', { skip }, () => {
  const file = (lines: readonly Record<string, unknown>[], folder = temporaryFolder()): SearchRequest['problems'] => ({
    kind: 'file',
    path: writeProblems(folder, lines),
  });
  let asked: SearchRequest;
  let wanted = '';
  const searched = async (more: Partial<SearchRequest>) => {
    const output = temporaryFolder();
    const summary = (await search({ ...asked, ...more, output }, SILENT)) as SearchSummary;
    return { summary, hash: hashOf(withoutNotes(samplesIn(output))) };
  };

  before(async () => {
    asked = {
      init: { kind: 'checkpoint' },
      precision: 'bf16',
      target: 'cuda',
      threads: 2,
      model: endingGenerator(join(VERIFIERS, 'rlhflow-prm'), FOLDER),
      verifier: { model: join(VERIFIERS, 'qwen-prm') },
      problems: file(LINES, FOLDER),
      options: OPTIONS,
      resume: false,
    };
    wanted = (await searched({})).hash;
  });

  it('give what a naive reference gives', async () => {
    assert.equal(hashOf(await naiveSamples(asked)), wanted);
  });

  const speculating = (speculate: SearchOptions['speculate']) => ({ options: { ...OPTIONS, speculate } });
  const two = { devices: 2, parallel: { replicas: 2, stages: 1 } } as const;
  const CONFIGURATIONS: readonly (readonly [string, () => Partial<SearchRequest>])[] = [
    ...[1, 2, 3, 8, 16, 128].map((atOnce) => [`${atOnce} at once`, () => ({ atOnce })] as const),
    ...[0.08, 0.2, 0.3, 0.5, 0.9].map(
      (memorySplit) => [`split ${memorySplit}`, () => ({ memorySplit, memory: MEMORY })] as const,
    ),
    ['little memory that moves', () => ({ memory: MEMORY / 4 })],
    ['shuffled', () => ({ problems: file(LINES.toReversed()) })],
    ['shuffled, 8 at once, split', () => ({ problems: file(LINES.toReversed()), atOnce: 8, memorySplit: 0.3 })],
    ['speculation', () => speculating('on')],
    ['no speculation', () => speculating('off')],
    ['speculation, 3 at once', () => ({ ...speculating('on'), atOnce: 3 })],
    ['few pages', () => ({ cacheTokens: 128 })],
    ['few pages and speculation', () => ({ cacheTokens: 144, ...speculating('on') })],
    ['small calls', () => ({ batchTokens: 64 })],
    ...(devices < 2
      ? []
      : ([
          ['two devices', () => two],
          ['two devices, shuffled, split', () => ({ ...two, problems: file(LINES.toReversed()), memorySplit: 0.3 })],
          ['two devices and speculation', () => ({ ...two, ...speculating('on') })],
        ] as const)),
  ];
  for (const [name, more] of CONFIGURATIONS)
    it(`have one hash: ${name}`, async () => {
      assert.equal((await searched(more())).hash, wanted);
    });

  it('have one hash where sequences give their pages back again and again', async () => {
    const { stepStop: _, ...rest } = OPTIONS;
    const options: SearchOptions = { ...rest, n: 8, stepTokens: 6, ignoreEos: true };
    const calm = await searched({ options });
    const forced = await searched({ options, cacheTokens: 160 });
    assert(forced.summary.generator.preemptions > 0, 'nothing was preempted');
    assert.equal(forced.hash, calm.hash);
  });
});
