import { afterAll, describe, expect, it } from 'vitest';
import { FORMATS } from '../../ir/storage.js';
import { loadAddon } from '../../runtime/addon.js';
import { inOrder, LayerHessian, roundRows, type CodeSettings } from '../../runtime/hessian.js';
import { dampedHessian, referenceCodes } from '../support/gptqReference.js';
import { randomOf } from '../fuzz/mutate.js';

const pool = new (loadAddon().Pool)(2);
afterAll(() => {
  pool.release();
});

const flat = (rows: readonly (readonly number[])[]): Float32Array => Float32Array.from(rows.flat());

/** Inputs whose columns depend on each other, of different sizes, and weights. */
function layer(seed: number, rows: number, k: number, tokens: number) {
  const next = randomOf(seed);
  const normal = (): number => next() + next() + next() - 1.5;
  const inputs = Array.from({ length: tokens }, () => {
    const shared = normal();
    return Array.from({ length: k }, (_, i) => Math.fround((normal() + shared) * (1 + (i % 7))));
  });
  return {
    inputs,
    weights: Array.from({ length: rows }, () => Array.from({ length: k }, () => Math.fround(normal()))),
  };
}

const f16 = (bits: Uint16Array): number[] => [
  ...FORMATS.f16.decode(new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength)),
];

async function hessianOf(inputs: readonly (readonly number[])[], pieces = 1): Promise<LayerHessian> {
  const hessian = new LayerHessian(pool, inputs[0]!.length);
  const size = Math.ceil(inputs.length / pieces);
  for (let at = 0; at < inputs.length; at += size) await hessian.add(flat(inputs.slice(at, at + size)));
  return hessian;
}

/** Σ e·H·eᵀ */
const quadratic = (errors: readonly (readonly number[])[], h: readonly (readonly number[])[]): number =>
  errors.reduce(
    (sum, e) => sum + e.reduce((own, x, i) => own + x * h[i]!.reduce((dot, each, j) => dot + each * e[j]!, 0), 0),
    0,
  );

describe('GPTQ', () => {
  const cases: readonly (readonly [string, number, CodeSettings, boolean])[] = [
    ['groups of a block', 256, { bits: 4, group: 128, isSymmetric: true }, false],
    ['groups within a block, asymmetric', 160, { bits: 4, group: 32, isSymmetric: false }, false],
    ['columns by activation', 192, { bits: 4, group: 64, isSymmetric: true }, true],
    ['a scale for each row, 8 bits', 152, { bits: 8, group: 152, isSymmetric: false }, true],
  ];
  it.each(cases)('chooses the codes of the paper: %s', async (_, k, settings, byActivation) => {
    const { inputs, weights } = layer(k, 19, k, 2 * k);
    const factored = await (await hessianOf(inputs)).factor(byActivation);
    const damped = dampedHessian(inputs);
    const order = [...factored.order];
    if (byActivation) expect(order).toEqual([...inOrder(k)].sort((a, b) => damped[b]![b]! - damped[a]![a]! || a - b));
    const rounded = await roundRows(pool, flat(weights), k, settings);
    const wanted = referenceCodes(weights, damped, order, settings);
    const plain = referenceCodes(weights, undefined, [...inOrder(k)], settings);
    const errorsBy = ({ codes, scales, zeros }: typeof plain, places: readonly number[]): number[][] =>
      weights.map((row, r) =>
        row.map((w, c) => {
          const at = Math.floor(places[c]! / settings.group) * weights.length + r;
          return w - (codes[r * k + c]! - zeros[at]!) * scales[at]!;
        }),
      );
    const places = order.map((_column, c) => order.indexOf(c));
    const lost = quadratic(errorsBy(wanted, places), damped);
    const lostByRounding = quadratic(errorsBy(plain, [...inOrder(k)]), damped);
    // The engine leaves out the factor 2 of H.
    const errors = flat(errorsBy(plain, [...inOrder(k)]));
    expect((2 * (await factored.norm(errors))) / lostByRounding).toBeCloseTo(1, 4);
    await factored.invert();
    const coded = await factored.code(flat(weights), settings);
    factored.release();
    expect([...coded.codes]).toEqual(wanted.codes);
    expect(f16(coded.scales)).toEqual(wanted.scales);
    expect([...coded.zeros]).toEqual(wanted.zeros);
    expect((2 * coded.loss) / lost).toBeCloseTo(1, 4);
    expect([...rounded.codes]).toEqual(plain.codes);
    expect(f16(rounded.scales)).toEqual(plain.scales);
    expect(lost).toBeLessThan(0.8 * lostByRounding);
  });

  it('gives the same bits whatever the threads and the pieces of the inputs', async () => {
    const settings: CodeSettings = { bits: 4, group: 64, isSymmetric: true };
    const { inputs, weights } = layer(5, 33, 320, 700);
    const alone = new (loadAddon().Pool)(1);
    const results = await Promise.all(
      [
        { pieces: 1, threads: alone },
        { pieces: 3, threads: pool },
      ].map(async ({ pieces, threads }) => {
        const hessian = new LayerHessian(threads, 320);
        const size = Math.ceil(inputs.length / pieces);
        for (let at = 0; at < inputs.length; at += size) await hessian.add(flat(inputs.slice(at, at + size)));
        const factored = await hessian.factor(false);
        const norm = await factored.norm(flat(weights));
        await factored.invert();
        const coded = await factored.code(flat(weights), settings);
        return { norm, ...coded };
      }),
    );
    alone.release();
    expect(results[0]).toEqual(results[1]);
  });

  it('rounds where no input was ever other than zero', async () => {
    const settings: CodeSettings = { bits: 4, group: 32, isSymmetric: true };
    const { weights } = layer(6, 4, 64, 1);
    const factored = await (await hessianOf([new Array<number>(64).fill(0)])).factor(false);
    await factored.invert();
    const coded = await factored.code(flat(weights), settings);
    expect([...coded.codes]).toEqual([...(await roundRows(pool, flat(weights), 64, settings)).codes]);
  });

  it('refuses what is no matrix of it', async () => {
    const addon = loadAddon();
    const hessian = new addon.Memory(64);
    expect(() => addon.addHessian(pool, { k: 64, hessian, inputs: new Float32Array(64) })).toThrow(/hessian/);
    const job = { k: 64, weights: new Float32Array(64), order: inOrder(64), bits: 4, group: 48, isSymmetric: true };
    expect(() => addon.codeRows(pool, job)).toThrow('groups of 48 do not divide 64 columns');
    const twice = { ...job, group: 64, order: new Int32Array(64) };
    expect(() => addon.codeRows(pool, twice)).toThrow('order is no permutation of columns');
  });
});
