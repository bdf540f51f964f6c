/** `tune` of an artifact that also generates, for a GPU: driver and NVRTC are stand-ins, everything else is real. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { isBuilt, ROOT, success, temporaryFolder, tilewright } from './support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: tuning on a GPU through the command: no cc or g++ on PATH\n');

interface Told {
  readonly functions: readonly { readonly name: string; readonly trials: number }[];
  readonly table: readonly string[];
  readonly isSaved: boolean;
}

describe.skipIf(!isBuilt || !canFakeGpu)('tune on a GPU', () => {
  test('measures score, then step, and names them', async () => {
    const gpu = new FakeGpu(temporaryFolder());
    const artifact = join(temporaryFolder(), 'demo.tw');
    const env = gpu.environment();
    const flags = ['--target', 'cuda', '--cache-tokens', '512', '--batch-tokens', '64'];
    success(await tilewright(['compile', join(ROOT, 'models/demo'), '-o', artifact, ...flags], { env }));
    const { stdout } = success(await tilewright(['tune', artifact, '--budget', '12s', '--json'], { env }));
    const { functions, table, isSaved } = JSON.parse(stdout) as Told;
    expect(functions.map(({ name }) => name)).toEqual(['score', 'step']);
    for (const { trials } of functions) expect(trials).toBeGreaterThan(0);
    expect(isSaved).toBe(true);
    expect(table.join('\n')).toMatch(/^score: layers/m);
    expect(table.join('\n')).toMatch(/^step: layers/m);
    success(await tilewright(['inspect', artifact], { env }));
  });
});
