/** The ablation of serving: its command line, padded contexts, and checkpoints whose heads are repeated. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { SERVING_ROWS } from '../../bench/serving.js';
import { padded, paddedExecutor, timedExecutor, WrittenRows, writeRepeated } from '../../bench/servingInputs.js';
import type { StepInputs } from '../../driver/devices/sequenceTable.js';
import type { DeviceExecutor } from '../../driver/executor.js';
import { STEP } from '../../ir/function.js';
import { stepExtents, stepSize } from '../../ir/stepping.js';
import { decodeEncoded } from '../../ir/encoding.js';
import { openCheckpoint } from '../../models/checkpoint.js';
import { readRange, withFile } from '../../system/read.js';
import { CONFIG } from '../e2e/smallModel.js';
import { temporaryFolder } from '../models/support.js';
import { quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { gptqWriter } from '../support/quantizeMatrix.js';

describe('npm run bench:serving', () => {
  it('changes one thing in each row but the last, which has all', () => {
    const [baseline, ...others] = SERVING_ROWS;
    const changed = others.map((row) =>
      (['isRepeated', 'kvCache', 'isPadded'] as const).filter((name) => row[name] !== baseline![name]),
    );
    expect(changed).toEqual([
      ['kvCache'],
      ['kvCache'],
      ['isRepeated'],
      ['isPadded'],
      ['isRepeated', 'kvCache', 'isPadded'],
    ]);
  });
});

describe('padded contexts', () => {
  const none = new Int32Array(0);
  /** Two tokens of a prompt, and one that continues a text of three. */
  const inputs: StepInputs = {
    tokens: Int32Array.of(5, 6, 7),
    position: Int32Array.of(0, 1, 3),
    slot: Int32Array.of(20, 21, 13),
    begin: Int32Array.of(0, 0, 2),
    key: Int32Array.of(20, 21, 10, 11, 12, 13),
    row: Int32Array.of(1, 2),
    ...{ target: none, inverseTemperature: new Float32Array(0), keyLow: none, keyHigh: none },
  };

  it('end with the keys of their own, and are as long as the longest may be', () => {
    const others = new WrittenRows();
    others.add(Int32Array.of(90, -1, 91, 90));
    const { position, begin, key } = padded(inputs, 5, others);
    expect([...key]).toEqual([90, 91, 90, 20, 21, 91, 10, 11, 12, 13]);
    expect([[...begin], [...position]]).toEqual([
      [0, 0, 5],
      [3, 4, 4],
    ]);
  });

  it('take keys that were written, and fit a call', async () => {
    const seen: StepInputs[] = [];
    const executor = {
      capacity: { [STEP]: stepExtents({ tokens: 64, keys: 40, rows: 64 }) },
      call: (_: string, given: StepInputs) => Promise.resolve(void seen.push(given)),
    } as unknown as DeviceExecutor;
    const own = paddedExecutor(executor, 5);
    expect(stepSize(own.capacity[STEP]!).tokens).toBe(8);
    await own.call(STEP, { ...inputs });
    const known = new Set([20, 21, 13]);
    expect([...seen[0]!.key].filter((slot) => !known.has(slot))).toEqual([10, 11, 12]);
  });

  it('are padded too where inputs are made in turn, and calls are timed', async () => {
    const seen: StepInputs[] = [];
    const spans = [
      { device: 0, kind: 'compute', begin: 5, end: 7 },
      { device: 0, kind: 'compute', begin: 7, end: 9.5 },
    ] as const;
    const executor = {
      capacity: { [STEP]: stepExtents({ tokens: 64, keys: 40, rows: 64 }) },
      callInTurn: (_: string, make: () => StepInputs) => {
        seen.push(make());
        return Promise.resolve({ outputs: {}, spans });
      },
    } as unknown as DeviceExecutor;
    const busy: number[] = [];
    const own = paddedExecutor(timedExecutor(executor, busy), 5);
    await own.callInTurn!(STEP, () => ({ ...inputs }));
    expect(seen[0]!.key).toHaveLength(10);
    expect(busy).toEqual([4.5]);
  });

  it('take many rows in a circle', () => {
    const rows = new WrittenRows();
    rows.add(Int32Array.from({ length: 3000 }, (_, i) => 7 * i));
    const target = new Int32Array(7000);
    rows.copy(target, 10, 6990, 2990);
    expect(rows.size).toBe(3000);
    expect([...target].every((row, i) => row === (i < 10 ? 0 : 7 * ((2980 + i) % 3000)))).toBe(true);
  });
});

describe('a checkpoint whose heads are repeated', () => {
  it('means the same matrices, each head as often as queries share it', () => {
    const [dir, target] = [temporaryFolder(), join(temporaryFolder(), 'repeated')];
    const heads = { num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, hidden_size: 64 };
    const config = { ...CONFIG, ...heads, tie_word_embeddings: true };
    const write = gptqWriter({ bits: 4, size: 32, isSymmetric: true, dtype: 'F16', version: 1 });
    const format = { config: { quant_method: 'gptq', bits: 4, group_size: 32, desc_act: false, sym: true }, write };
    const { tensors, meant } = quantizedTensors(config, write, 5);
    writeQuantized(dir, config, format, safetensorsOf(tensors));
    writeFileSync(join(dir, 'tokenizer.model'), 'kept');
    writeRepeated(openCheckpoint(dir), target);
    const repeated = openCheckpoint(target);
    for (const [name, { shape, values }] of meant) {
      const found = repeated.tensors.get(name)!;
      const times = /[kv]_proj/.test(name) ? 2 : 1;
      expect(found.shape).toEqual(shape.map((extent, i) => (i === 0 ? extent * times : extent)));
      if (found.kind !== 'encoded') continue;
      const parts = Object.entries(found.parts).map(([part, { file, offset, byteLength }]) => [
        part,
        withFile(file, (fd) => readRange(fd, offset, byteLength)),
      ]);
      const [rows = 1, k = 1] = found.shape;
      const got = decodeEncoded(found.encoding, rows, k, Object.fromEntries(parts) as Record<string, Uint8Array>);
      for (let row = 0; row < rows; row++) {
        const own = times * 16;
        const from = times === 1 ? row : Math.floor(row / own) * 16 + (row % 16);
        expect([...got.subarray(row * k, row * k + k)]).toEqual([...values.subarray(from * k, from * k + k)]);
      }
    }
  });
});
