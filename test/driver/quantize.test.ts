/**
 * A checkpoint is quantized by our kernels, and read back. What GPTQ chose is computed once more by its paper, from
 * inputs that the graph interpreter finds in float64 with the matrices that were written.
 */
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { quantize, type QuantizeRequest } from '../../commands/quantize.js';
import { buildGraph } from '../../driver/functions.js';
import { chooseMatrices } from '../../driver/quantize/matrices.js';
import { pieceEnd, readSamples } from '../../driver/quantize/samples.js';
import { storedTensors } from '../../driver/quantize/tensors.js';
import type { Ui } from '../../driver/requests.js';
import { tensorValues } from '../../driver/tensorValues.js';
import { UserError } from '../../errors.js';
import type { Value } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { environment, ROOT } from '../e2e/support.js';
import { temporaryFolder } from '../models/support.js';
import { dampedHessian, referenceCodes } from '../support/gptqReference.js';

const FAMILIES = join(ROOT, '..', 'shared', 'checkpoints', 'families');
const TEXT = join(ROOT, 'README.md');
const notes: string[] = [];
const ignore = (): void => undefined;
const UI: Ui = {
  phase: ignore,
  step: ignore,
  run: ignore,
  table: ignore,
  note: (line) => notes.push(line),
  detail: ignore,
  warn: ignore,
};
const CALIBRATION = { file: TEXT, samples: 6, length: 24, seed: 3 };

const request = (model: string, more: Partial<QuantizeRequest> = {}): QuantizeRequest => ({
  model,
  output: join(temporaryFolder(), 'out'),
  bits: 4,
  group: 32,
  method: 'gptq',
  isSymmetric: false,
  byActivation: true,
  calibration: CALIBRATION,
  threads: 2,
  ...more,
});

/** Rows of k numbers. */
const rowsOf = (data: Float64Array, k: number): number[][] =>
  Array.from({ length: data.length / k }, (_, row) => [...data.subarray(row * k, (row + 1) * k)]);

/** Any other error fails the test. */
function asUserError(error: unknown): UserError {
  if (error instanceof UserError) return error;
  throw error;
}

beforeAll(() => {
  for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
});

describe('calibration text', () => {
  it('is cut behind lines, else behind words, and never within a character', () => {
    const cut = (text: string, most: number): string[] => {
      const pieces: string[] = [];
      for (let from = 0; from < text.length; from = pieceEnd(text, from, most))
        pieces.push(text.slice(from, pieceEnd(text, from, most)));
      return pieces;
    };
    expect(cut('one two\nthree\nfour', 10)).toEqual(['one two\n', 'three\nfour']);
    expect(cut('one two three', 6)).toEqual(['one ', 'two ', 'three']);
    expect(cut('abcdefg', 3)).toEqual(['abc', 'def', 'g']);
    expect(cut('a😀😀b', 2)).toEqual(['a', '😀', '😀', 'b']);
    expect(cut('', 2)).toEqual([]);
  });
});

describe('quantizeCheckpoint', () => {
  it('writes the codes that GPTQ chooses, which are read back', async () => {
    const asked = request(join(FAMILIES, 'phi3'));
    const result = await quantize(asked, UI);
    expect(notes).toEqual(['stays as stored (head and embeddings): model.embed_tokens.weight, lm_head.weight']);
    const [before, after] = [openCheckpoint(asked.model), openCheckpoint(asked.output)];
    expect([...after.quantized!.schemes]).toEqual([
      ['GPTQ, 4 bits, groups of 32, columns by activation', expect.objectContaining({ matrices: 16 })],
    ]);
    for (const name of ['tokenizer.json', 'generation_config.json'])
      expect(readFileSync(join(asked.output, name))).toEqual(readFileSync(join(asked.model, name)));
    expect(tensorValues(after.tensors, 'model.norm.weight', 1)).toEqual(
      tensorValues(before.tensors, 'model.norm.weight', 1),
    );

    // Inputs of all matrices with those that were written.
    const graph = buildGraph(after);
    const { groups } = chooseMatrices(graph, storedTensors(after), { ...result.settings });
    const weights = new Map(
      graph.weights.map(({ name }) => [name, tensorValues(after.tensors, name, 1).data] as const),
    );
    const inputs = new Map<Value, number[][]>(groups.map(({ value }) => [value, []]));
    for (const sample of await readSamples(before, CALIBRATION)) {
      const places = Float64Array.from(sample, (_, i) => i);
      const params = new Map([
        ['tokens', Float64Array.from(sample)],
        ['position', places],
        ['subtreeEnd', places.map(() => sample.length)],
        ['row', places],
        ['target', places],
      ]);
      interpretGraph(graph, {
        ...{ sizes: { T: sample.length, R: sample.length }, params, weights },
        trace: ({ result: value }, { shape, data }) => inputs.get(value)?.push(...rowsOf(data, shape[1]!)),
      });
    }
    let [all, same] = [0, 0];
    for (const { value, inputs: own } of groups)
      for (const { matrices, k } of own) {
        const damped = dampedHessian(inputs.get(value)!);
        const order = [...damped.keys()].sort((a, b) => damped[b]![b]! - damped[a]![a]! || a - b);
        for (const { tensor } of matrices) {
          const parts = tensor.parts?.map(({ name }) => name) ?? [tensor.name];
          const read = (from: typeof before): number[][] =>
            parts.flatMap((name) => rowsOf(tensorValues(from.tensors, name, k).data, k));
          const [wanted, found] = [read(before), read(after)];
          const settings = { bits: 4, group: 32, isSymmetric: false };
          const { codes, scales, zeros } = referenceCodes(wanted, damped, order, settings);
          const places = order.map((_, column) => order.indexOf(column));
          found.forEach((row, r) =>
            row.forEach((x, column) => {
              const at = Math.floor(places[column]! / 32) * found.length + r;
              all++;
              if (x === Math.fround((codes[r * k + column]! - zeros[at]!) * scales[at]!)) same++;
            }),
          );
        }
      }
    expect(all).toBe(result.matrices.reduce((sum, { rows, k }) => sum + rows * k, 0));
    // A number between two codes may fall to either side, and moves what comes after it in its row.
    expect(same / all).toBeGreaterThan(0.995);
    expect(result.matrices.every(({ error, roundingError }) => error! < roundingError!)).toBe(true);
  });

  it('rounds to the nearest without a text', async () => {
    const { calibration: _, ...asked } = request(join(FAMILIES, 'qwen3'), { method: 'round', byActivation: false });
    const { matrices, samples } = await quantize({ ...asked, isSymmetric: true }, UI);
    expect([matrices.length, samples]).toEqual([28, 0]);
    const [before, after] = [openCheckpoint(asked.model), openCheckpoint(asked.output)];
    for (const { tensor, k } of matrices) {
      const [wanted, found] = [before, after].map(({ tensors }) => tensorValues(tensors, tensor, k).data) as [
        Float64Array,
        Float64Array,
      ];
      let worst = 0;
      for (let at = 0; at < wanted.length; at += 32) {
        const group = wanted.subarray(at, at + 32);
        const step = (2 * Math.max(...group.map(Math.abs))) / 15;
        group.forEach((x, i) => (worst = Math.max(worst, Math.abs(found[at + i]! - x) / step)));
      }
      // f16 scales are half a part in a thousand off.
      expect(worst).toBeLessThan(0.51);
    }
  });

  it('leaves nothing behind where it is stopped', async () => {
    const stop = AbortSignal.abort(new Error('stopped'));
    const { output, ...asked } = request(join(FAMILIES, 'phi3'), {
      method: 'round',
      byActivation: false,
      signal: stop,
    });
    await expect(quantize({ ...asked, output }, UI)).rejects.toThrow('stopped');
    expect(readdirSync(join(output, '..'))).toEqual([]);
  });

  it('copies files of a checkpoint that is read-only, and what Python wrote into config.json', async () => {
    const model = temporaryFolder();
    cpSync(join(FAMILIES, 'phi3'), model, { recursive: true });
    chmodSync(model, 0o700);
    const config = join(model, 'config.json');
    chmodSync(config, 0o600);
    writeFileSync(config, readFileSync(config, 'utf8').replace('{', '{ "losses": [NaN, -Infinity],'));
    for (const name of readdirSync(model)) chmodSync(join(model, name), 0o444);
    const { calibration: _, ...asked } = request(model, { method: 'round', byActivation: false });
    await quantize(asked, UI);
    const copied = join(asked.output, 'tokenizer.json');
    expect(readFileSync(copied)).toEqual(readFileSync(join(model, 'tokenizer.json')));
    expect(readFileSync(join(asked.output, 'config.json'), 'utf8')).toMatch(/"losses": \[\s*NaN,\s*-Infinity\s*\]/);
    expect(openCheckpoint(asked.output).config).toEqual(openCheckpoint(model).config);
    // Its owner may write to it, as to the other files: it is synced by the one that wrote it.
    expect(statSync(copied).mode & 0o200).toBe(0o200);
  });

  it('refuses in one line what it cannot do', async () => {
    const folder = temporaryFolder();
    const text = (name: string, words: string): string => {
      writeFileSync(join(folder, name), words);
      return join(folder, name);
    };
    const refused = async (more: Partial<QuantizeRequest>, model = 'phi3'): Promise<string> => {
      const refusal = await quantize(request(resolve(FAMILIES, model), more), UI).catch(asUserError);
      if (!(refusal instanceof UserError)) throw new Error('it was not refused');
      expect(refusal.message).not.toContain('\n');
      return refusal.message;
    };
    const calibratedBy = (file: string, length = 24) => ({ calibration: { ...CALIBRATION, file, length } });
    expect(await refused(calibratedBy(text('empty', ' \n')))).toContain('the calibration text is empty');
    expect(await refused(calibratedBy(text('short', 'too short')))).toMatch(
      /tokens of calibration text, fewer than the 24/,
    );
    expect(await refused(calibratedBy(TEXT, 1))).toMatch(/^samples of 1 token: a sample begins with/);
    expect(await refused(calibratedBy(TEXT, 1 << 20))).toMatch(
      /^samples of 1048576 tokens: the model has \d+ positions/,
    );
    expect(await refused({ group: 128 })).toMatch(
      /^groups of 128 columns do not divide the 64 of .* 15 other matrices/,
    );
    mkdirSync(join(folder, 'there'));
    expect(await refused({ output: join(folder, 'there') })).toMatch(/there: is there already$/);
    const done = request(join(FAMILIES, 'phi3'), { method: 'round', byActivation: false });
    await quantize(done, UI);
    expect(await refused({}, done.output)).toMatch(/is quantized already \(GPTQ, 4 bits, groups of 32\)$/);
    if (process.getuid?.() === 0) return;
    chmodSync(folder, 0o500);
    expect(await refused({ output: join(folder, 'new') })).toContain('permission denied');
    chmodSync(folder, 0o700);
    expect(existsSync(join(folder, 'new'))).toBe(false);
  });
});
