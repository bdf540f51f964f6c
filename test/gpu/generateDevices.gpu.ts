/** `generate` on two GPUs, as replicas and as a pipeline: the lines that one GPU writes, to the byte. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { cudaAvailable } from '../../runtime/cuda/addon.js';
import { DEMO, MAIN, start } from './command.js';
import { archOf } from './launcher.js';
import { randomTokens } from './sequences.js';
import { compilerOrReason, temporaryFolder } from './support.js';

const available = cudaAvailable();
const arch = archOf(available);
const compiler = typeof arch === 'string' ? await compilerOrReason(arch) : arch.reason;
/** GPUs that run one plan. */
const alike = available.ok ? available.devices.filter(({ name }) => name === available.devices[0]?.name).length : 0;
const skip =
  typeof compiler === 'string'
    ? compiler
    : alike < 2
      ? `there are ${alike} GPUs of a kind; text of two GPUs needs two`
      : false;

const BEGINNING = randomTokens(9, 40);
/** Some begin alike; one is longer than a call. */
const PROMPTS = [3, 40, 17, 80, 33, 1, 64, 20, 9, 50, 400, 5].map((length, i) =>
  i % 3 === 0 ? [...BEGINNING, ...randomTokens(20 + i, length)] : randomTokens(20 + i, length),
);

const WAYS: readonly (readonly [what: string, flags: readonly string[]])[] = [
  ['the most likely tokens', []],
  ['drawn tokens, three texts a prompt', ['--temperature', '1', '--n', '3', '--seed', '5']],
];

describe('text of two GPUs', { skip }, () => {
  const file = join(temporaryFolder(), 'prompts.jsonl');
  /** Lines without what depends on which other prompts a replica had: what it found in pages. */
  const run = async (...flags: readonly string[]): Promise<string[]> => {
    const task = ['generate', DEMO, '--target', 'cuda', '--prompts', file, '--json', '--ignore-eos'];
    const sizes = ['--max-new-tokens', '24', '--batch-tokens', '256', '--cache-tokens', '8192'];
    const { status, output } = await start(process.execPath, [MAIN, ...task, ...sizes, ...flags], 120);
    assert.equal(status, 0, output.slice(-2000));
    const lines = output.split('\n').filter((line) => line.startsWith('{"index"'));
    return lines.map((line) => JSON.stringify({ ...(JSON.parse(line) as object), foundTokens: 0 }));
  };
  const alone = new Map<string, readonly string[]>();

  before(async () => {
    writeFileSync(file, PROMPTS.map((tokens) => `${JSON.stringify({ tokens })}\n`).join(''));
    for (const [what, flags] of WAYS) alone.set(what, await run(...flags));
    assert.deepEqual(
      [...alone.values()].map(({ length }) => length),
      [PROMPTS.length, 3 * PROMPTS.length],
    );
  });

  for (const parallel of ['dp=2', 'pp=2'])
    for (const [what, flags] of WAYS)
      it(`is that of one: ${parallel}, ${what}`, async () => {
        assert.deepEqual(await run('--parallel', parallel, ...flags), alone.get(what));
      });
});
