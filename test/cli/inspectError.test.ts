/** `inspect --error`: flags, prompts and the text of a report. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { ErrorReport, ErrorRequest } from '../../commands/inspectError.js';
import { runCli } from './fakeIo.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-prompts-'));
afterAll(() => rmSync(folder, { recursive: true }));

const REPORT: ErrorReport = {
  ...{
    model: 'm',
    arithmetic: 'int8 and bf16',
    activations: 'bf16',
    weights: 'bf16',
    target: 'cpu',
    against: 'float64',
    prompts: 2,
    tokens: 12,
  },
  kernels: [
    { path: 'embed', layer: undefined, outputs: [{ buffer: 'h', error: 0 }] },
    { path: 'layers.0.up', layer: 0, outputs: [0.001, 0.0025].map((error, i) => ({ buffer: `b${i}`, error })) },
    { path: 'layers.0.down', layer: 0, outputs: [{ buffer: 'c', error: 0.004 }] },
    { path: 'layers.1.up', layer: 1, outputs: [{ buffer: 'd', error: 2e-8 }] },
  ],
  layers: [{ layer: 0, error: 0.004 }],
  logProbability: { meanAbsolute: 0.0125, worst: 0.5 },
};

async function asked(...flags: string[]): Promise<{ request: ErrorRequest; stdout: string }> {
  let request: ErrorRequest | undefined;
  const inspectError = (given: ErrorRequest): Promise<ErrorReport> => {
    request = given;
    return Promise.resolve(REPORT);
  };
  const { stdout, stderr } = await runCli(['inspect', 'm', '--error', ...flags], { inspectError });
  if (request === undefined) throw new Error(stderr);
  return { request, stdout };
}

describe('inspect --error', () => {
  it('prints a row for each layer, with the largest error of each kernel', async () => {
    const { stdout } = await asked();
    expect(stdout.split('\n')).toEqual([
      'm: int8 and bf16 inputs, other activations bf16 (cpu) beside float64; 2 prompts, 12 tokens',
      'rms of the difference divided by rms of the value; of several results of a kernel the largest',
      '',
      'layer   stream       up     down',
      '0      0.00400  0.00250  0.00400',
      '1                2.0e−8',
      '',
      'embed  0',
      'log-probabilities of 10 tokens: |Δ| 0.0125 nats on average, 0.500 at worst',
      '',
    ]);
    expect(JSON.parse((await asked('--json')).stdout)).toEqual(JSON.parse(JSON.stringify(REPORT)));
  });

  it('takes prompts of its own, or lines and questions of a file', async () => {
    expect((await asked()).request).toMatchObject({ model: 'm', precision: 'auto', tokens: 32 });
    expect((await asked()).request.prompts).toHaveLength(4);
    const data = join(folder, 'prompts');
    writeFileSync(data, 'plain text\n\n{"question": "why?", "answer": 1}\n{"no": 1}\nlast');
    const { request } = await asked('--data', data, '--limit', '3', '--tokens', '9', '--against', 'f32');
    expect(request).toMatchObject({ prompts: ['plain text', 'why?', '{"no": 1}'], tokens: 9, against: 'f32' });
    expect((await asked('--kv-cache', 'int8')).request.kvCache).toBe('int8');
  });

  it('refuses what would have no effect', async () => {
    const refused = async (...argv: string[]): Promise<string> => (await runCli(['inspect', 'm', ...argv])).stderr;
    expect(await refused('--error', '--plan')).toContain('--error and --plan: one at a time');
    expect(await refused('--limit', '3')).toContain('--limit is for --error');
    expect(await refused('--error', '--batch-tokens', '64')).toContain('--batch-tokens has no effect on --error');
    expect(await refused('--error', '--target', 'auto')).toContain('name what is to be looked at');
    expect(await refused('--error', '--against', 'fp4')).toContain('--against');
    expect(await refused('--error', '--data', join(folder, 'none'))).toContain('no such file');
  });
});
