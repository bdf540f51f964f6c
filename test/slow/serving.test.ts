/** `bench:serving --target cuda` from end to end, on a stand-in for a GPU: weights in 16 bits and in 4, all rows. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { SERVING_ROWS } from '../../bench/serving.js';
import { readSettings } from '../../settings.js';
import { isBuilt, MAIN, ROOT, temporaryFolder } from '../e2e/support.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';

describe.skipIf(!isBuilt || !canFakeGpu)('npm run bench:serving -- --target cuda', () => {
  it('serves every row of both kinds of weights, and asks trained ones for accuracies', async () => {
    const env = {
      PATH: readSettings().path,
      ...new FakeGpu(temporaryFolder()).environment(`totalBytes=${2 ** 33}`, 'mapsMemory=0'),
    };
    const run = async (...line: string[]): Promise<string> =>
      (await promisify(execFile)(process.execPath, line, { env })).stdout;
    const data = join(temporaryFolder(), 'arc.jsonl');
    const labels = ['A', 'B', 'C', 'D'];
    const choices = { text: ['water', 'a stone', 'the sun', 'an old shoe'], label: labels };
    const lines = labels.map((answerKey, id) => ({ id: `${id}`, question: `What is item ${id}?`, choices, answerKey }));
    writeFileSync(data, lines.map((line) => JSON.stringify(line)).join('\n'));
    const [model, gptq] = [join(ROOT, 'models', 'demo'), join(temporaryFolder(), 'int4')];
    await run(MAIN, 'quantize', model, '-o', gptq, '--method', 'round', '--group', '32', '--quiet');
    const stdout = await run(
      join(ROOT, 'dist', 'bench', 'serving.js'),
      ...['--target', 'cuda', '--model', 'llama-25m', '--trained', model, '--gptq', gptq, '--requests', '3'],
      ...['--rounds', '1', '--spread', '0.5', '--context', '512', '--limit', '4'],
      ...['--challenge', data],
    );
    for (const { name } of SERVING_ROWS) {
      const rows = stdout.split('\n').filter((line) => line.includes(`| ${name} |`));
      expect(rows).toHaveLength(2);
      for (const row of rows) expect(row).toMatch(/\d \| \d+\.00 ± \d+\.\d\d \| – \|$/);
    }
    expect(stdout).not.toMatch(/NaN|Infinity/);
  });
});
