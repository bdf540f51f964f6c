/**
 * Matrices rounded to FP8 on a real device while they stream: codes and scales are those of the reference, from one
 * reading of each matrix, and the rate is that of matrices that stay as they are.
 */
import assert from 'node:assert/strict';
import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Pairing, WeightDecl } from '../../ir/kernel.js';
import { logicalWeight, type RawTensor } from '../../ir/logicalWeight.js';
import { packedDepth, physicalToLogical, sourceRows } from '../../ir/packing.js';
import type { RotaryOrder } from '../../ir/rotaryOrder.js';
import { type FormatName, FORMATS } from '../../ir/storage.js';
import { planLoading } from '../../runtime/cuda/loadPlan.js';
import { MAX_KEPT } from '../../runtime/cuda/packCodeKernels.js';
import { copiedBytesOf, printLoadTimes, weightSlots } from '../../runtime/cuda/weights.js';
import type { TensorSource } from '../../runtime/tensorSource.js';
import { planWeights } from '../../runtime/weightPlan.js';
import { randomValue } from '../runtime/packReference.js';
import { load, open, skip } from './loading.js';
import { temporaryFolder } from './support.js';

interface Case {
  readonly format: FormatName;
  readonly rows: readonly number[];
  readonly k: number;
  readonly pairing?: Pairing;
  readonly order?: RotaryOrder;
  readonly isScaled?: boolean;
  /** Of a row. */
  readonly factor?: (row: number) => number;
}

const CASES: Readonly<Record<string, Case>> = {
  'one row of one element': { format: 'bf16', rows: [1], k: 1 },
  'odd sizes': { format: 'bf16', rows: [37], k: 1003, isScaled: true },
  'f32 with many rows': { format: 'f32', rows: [3000], k: 130 },
  'halves of heads': { format: 'f16', rows: [192], k: 516, pairing: { kind: 'rotate', headDim: 64, width: 8 } },
  'rows in another order': {
    ...{ format: 'bf16', rows: [96], k: 300, isScaled: true },
    order: { headDim: 48, rotated: 48, interleaved: true },
  },
  'gate and up': { format: 'bf16', rows: [61, 61], k: 2048, pairing: { kind: 'interleave', width: 8 }, isScaled: true },
  'rows longer than what is kept': { format: 'bf16', rows: [9], k: MAX_KEPT + 1029, isScaled: true },
  'any magnitude': {
    ...{ format: 'f32', rows: [64], k: 777 },
    factor: (row) => (row === 0 ? 0 : 2 ** (4 * row - 130)),
  },
};

describe('rounding to FP8', { skip }, () => {
  const folder = temporaryFolder();

  for (const [name, { format, rows, k, pairing, order, isScaled = false, factor = () => 1 }] of Object.entries(CASES))
    it(`${name}: codes and scales are the reference's`, async () => {
      const bench = await open();
      const tensors = new Map<string, TensorSource>();
      const raw = new Map<string, RawTensor>();
      const add = (tensor: string, shape: readonly number[], value: (i: number) => number): void => {
        const count = shape.reduce((a, b) => a * b);
        const bytes = FORMATS[format].encode(Float64Array.from({ length: count }, (_, i) => value(i)));
        const file = join(folder, `${name}-${tensor}`.replaceAll(' ', '_'));
        writeFileSync(file, bytes);
        tensors.set(tensor, { kind: 'file', format, shape, file, offset: 0, byteLength: bytes.length });
        const [first = 1, second] = shape;
        const [n, columns] = second === undefined ? [1, first] : [first, second];
        raw.set(tensor, { rows: n, columns, data: FORMATS[format].decode(bytes) });
      };
      rows.forEach((n, i) =>
        add(`t${i}`, [n, k], (at) => factor(Math.floor(at / k)) * randomValue(BigInt(i), at, 0.02)),
      );
      add('norm', [k], (at) => randomValue(9n, at, 1));
      const sources = rows.map((n, i) => ({ tensor: `t${i}`, rows: n, ...(order === undefined ? {} : { order }) }));
      const scaled = isScaled ? { columnScale: 'norm' } : {};
      const codes: WeightDecl = {
        ...{ name: 'codes', layout: 'kmajor', format: 'e4m3', k, sources, ...scaled },
        pairing: pairing ?? { kind: 'none' },
      };
      const scales = sources.map((source, i): WeightDecl => ({
        ...{ name: `scales${i}`, layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' }, ...scaled },
        ...{ sources: [source], scalesOf: { format: 'e4m3', k } },
      }));
      const plan = planWeights([...scales, codes], [], tensors, { isMapping: false });
      const staging = 4 * k * FORMATS[format].bytes(1, 1) + 4096;
      const files = FORMATS[format].bytes(sourceRows(codes) + (isScaled ? 1 : 0), k);
      for (const size of [staging, undefined]) {
        assert.equal(copiedBytesOf(planLoading(plan, size)), files);
        const { memory } = await load(bench, plan, size);
        const slots = weightSlots(plan, memory);
        const bytesOf = (weight: WeightDecl): ArrayBuffer => {
          const { offset, bytes } = slots.get(weight.name)!;
          return memory.read(offset, bytes);
        };
        for (const weight of scales)
          assert.deepEqual([...new Float32Array(bytesOf(weight))], [...logicalWeight(weight, raw, true)]);
        const wanted = FORMATS.e4m3.encode(logicalWeight(codes, raw, true));
        const got = new Uint8Array(bytesOf(codes));
        const stride = packedDepth(codes);
        physicalToLogical(codes).forEach((row, at) => {
          const own = Buffer.alloc(stride);
          if (row >= 0) own.set(wanted.subarray(row * k, (row + 1) * k));
          assert(own.equals(got.subarray(at * stride, (at + 1) * stride)), `row ${at}`);
        });
        memory.release();
      }
      bench.release();
    });

  it('goes at the rate of the bus', async () => {
    const bench = await open();
    // Eight layers of the ffn of a model of 8B: 2.8 GB.
    const [rows, k, count] = [14336, 4096, 24];
    const bytes = rows * k * 2;
    const file = join(folder, 'weights.bin');
    const handle = openSync(file, 'w');
    const values = Float64Array.from({ length: 1 << 20 }, (_, i) => randomValue(1n, i, 0.02));
    const chunk = FORMATS.bf16.encode(values);
    for (let at = 0; at < count * bytes; at += chunk.length) writeSync(handle, chunk);
    closeSync(handle);
    const names = Array.from({ length: count }, (_, i) => `t${i}`);
    const tensors = new Map(
      names.map((tensor, i): [string, TensorSource] => [
        tensor,
        { kind: 'file', format: 'bf16', shape: [rows, k], file, offset: i * bytes, byteLength: bytes },
      ]),
    );
    const matrix = (tensor: string, format: 'bf16' | 'e4m3'): WeightDecl => ({
      ...{ name: tensor, layout: 'kmajor', format, k, pairing: { kind: 'none' }, sources: [{ tensor, rows }] },
    });
    const kept = names.map((tensor) => matrix(tensor, 'bf16'));
    const rounded = names.flatMap((tensor): WeightDecl[] => [
      {
        ...{ name: `${tensor}_scales`, layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' } },
        ...{ sources: [{ tensor, rows }], scalesOf: { format: 'e4m3', k } },
      },
      matrix(tensor, 'e4m3'),
    ]);
    for (const [what, weights] of [
      ['bf16, first', kept],
      ['bf16', kept],
      ['rounded to FP8', rounded],
      ['bf16 again', kept],
      ['rounded to FP8 again', rounded],
    ] as const) {
      const { memory, times } = await load(bench, planWeights(weights, [], tensors, { isMapping: false }));
      console.log(`${what}: ${printLoadTimes(times)}`);
      assert.equal(times.copiedBytes, count * bytes);
      memory.release();
    }
    bench.release();
  });
});
