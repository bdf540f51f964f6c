/**
 * The same question has the same answer however it is computed: threads, micro-batch, other questions, sharing. Equal
 * means every bit, because kernels add along a path in one order, whatever the batch around it.
 */
import { beforeAll, describe, expect, test } from 'vitest';
import {
  CONFIG,
  questions,
  safetensorsFile,
  tensorsOf,
  writeCheckpoint,
  writeData,
  type StoredTensor,
} from './smallModel.js';
import { answersOf, CAPACITY, isBuilt, success, temporaryFolder, textOf, tilewright, type Answer } from './support.js';

describe.skipIf(!isBuilt)('answers', () => {
  const model = writeCheckpoint();
  const data = writeData(questions(400));
  const score = async (checkpoint: string, ...more: string[]): Promise<string> => {
    const out = temporaryFolder();
    success(
      await tilewright([
        'run',
        checkpoint,
        '--task',
        'multiple_choice',
        '--data',
        data,
        '--out',
        out,
        ...(more.includes('--batch-tokens') ? [] : CAPACITY),
        ...more,
      ]),
    );
    return out;
  };
  let whole: Answer[] = [];
  let samples = '';

  beforeAll(async () => {
    const out = await score(model, '--threads', '2');
    whole = answersOf(out);
    samples = textOf(out, 'samples');
  });

  test('exist for every question and differ between choices', () => {
    expect(whole).toHaveLength(400);
    expect(whole.flatMap(({ ll }) => ll).every((value) => Number.isFinite(value) && value < 0)).toBe(true);
    expect(whole.filter(({ ll }) => new Set(ll).size > 1).length).toBeGreaterThan(390);
  });

  test.each<[string, string[]]>([
    ['one thread', ['--threads', '1']],
    ['two threads again', ['--threads', '2']],
    ['more threads than processors', ['--threads', '5']],
    ['micro-batches of 256 tokens', ['--threads', '2', '--batch-tokens', '256']],
    [
      'micro-batches of 256 tokens, one thread, without sharing',
      ['--threads', '1', '--batch-tokens', '256', '--sharing', 'none'],
    ],
    ['sharing none', ['--threads', '2', '--sharing', 'none']],
    ['sharing context', ['--threads', '2', '--sharing', 'context']],
    ['keys in lists, by position', ['--threads', '2', '--mask', 'path']],
  ])('are the same to the bit with %s', async (_, flags) => {
    expect(textOf(await score(model, ...flags), 'samples')).toBe(samples);
  });

  test.each<[string, number, number | undefined]>([
    ['0:1', 0, 1],
    ['37:38', 37, 38],
    ['100:250', 100, 250],
    ['390:', 390, undefined],
  ])('of questions %s alone are those of the whole run', async (range, first, end) => {
    const some = answersOf(await score(model, '--threads', '2', '--docs', range));
    expect(some).toEqual(whole.slice(first, end));
  });

  test('do not depend on how equal weights are stored', async () => {
    // Values that both float32 and bfloat16 represent exactly.
    const values = tensorsOf().map((tensor): StoredTensor => ({
      ...tensor,
      values: tensor.values.map((value) => Math.round(value * 64) / 64),
    }));
    const f32 = answersOf(await score(writeCheckpoint({ weights: safetensorsFile(values) }), '--precision', 'f32'));
    const dir = writeCheckpoint({ config: { ...CONFIG, torch_dtype: 'bfloat16' }, weights: bf16File(values) });
    expect(answersOf(await score(dir, '--precision', 'f32'))).toEqual(f32);
  });
});

/** The upper half of a float32: exact if the lower half is zero. */
const toBf16 = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0]! >>> 16;

function bf16File(tensors: readonly StoredTensor[]): Buffer {
  const header: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let at = 0;
  for (const { name, shape, values } of tensors) {
    const bytes = Buffer.alloc(2 * values.length);
    values.forEach((value, i) => bytes.writeUInt16LE(toBf16(value), 2 * i));
    header[name] = { dtype: 'BF16', shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    parts.push(bytes);
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  return Buffer.concat([length, json, ...parts]);
}
