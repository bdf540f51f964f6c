import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { UserError } from '../../../errors.js';
import { readTorchFile } from '../../../models/weights/stateDict.js';
import { temporaryFolder, userError } from '../support.js';
import {
  pickled,
  pickledNone,
  pickledTensor,
  stateDict,
  torchFile,
  type WrittenTensor,
  zip,
} from './writeTorchFile.js';
import { casesHere, isThorough } from '../../support/thorough.js';

function write(content: Buffer): string {
  const path = join(temporaryFolder(), 'pytorch_model.bin');
  writeFileSync(path, content);
  return path;
}
const refusal = (content: Buffer): string => {
  const { message } = userError(() => readTorchFile(write(content)));
  expect(message).not.toContain('\n');
  return message;
};

const STORAGES = { '0': Buffer.from(Float32Array.of(1, 2, 3, 4, 5, 6).buffer), '1': Buffer.from([1, 2, 3, 4]) };
const MATRIX: WrittenTensor = { storage: '0', type: 'FloatStorage', shape: [2, 3] };
const VECTOR: WrittenTensor = { storage: '1', type: 'BFloat16Storage', shape: [2] };
const GOOD = [
  ['a', MATRIX],
  ['b', VECTOR],
] as const;
const withTensor = (changes: Partial<WrittenTensor>): Buffer => torchFile([['a', { ...MATRIX, ...changes }]], STORAGES);
/** A good archive around another pickle. */
const withPickle = (pickle: Buffer): Buffer => torchFile([], STORAGES, { pickle });

describe('readTorchFile', () => {
  it.each([false, true])('finds the bytes of every tensor (64-bit directory: %s)', (has64Bits) => {
    const path = write(torchFile(GOOD, STORAGES, { has64Bits }));
    const { entries, sizeBytes } = readTorchFile(path);
    const bytes = readFileSync(path);
    expect(sizeBytes).toBe(bytes.length);
    expect(entries.map(({ name, dtype, shape }) => [name, dtype, shape])).toEqual([
      ['a', 'F32', [2, 3]],
      ['b', 'BF16', [2]],
    ]);
    entries.forEach(({ offset, byteLength }, i) => {
      expect(bytes.subarray(offset, offset + byteLength)).toEqual(Object.values(STORAGES)[i]);
    });
  });

  it('reads views of a storage, which tied weights share', () => {
    const row: WrittenTensor = { ...MATRIX, shape: [1, 3], strides: [99, 1], offset: 3 };
    const [a, b, c] = readTorchFile(
      write(
        torchFile(
          [
            ['a', MATRIX],
            ['b', MATRIX],
            ['c', row],
          ],
          STORAGES,
        ),
      ),
    ).entries;
    expect(b).toEqual({ ...a, name: 'b' });
    expect(c!.offset).toBe(a!.offset + 12);
    expect(c!.byteLength).toBe(12);
  });

  it('leaves out what is no tensor, and takes parameters as their tensors', () => {
    const parameter = pickled.call(
      pickled.global('torch._utils', '_rebuild_parameter'),
      pickled.tuple(pickledTensor(MATRIX, 6), Buffer.from([0x88]), pickledNone),
    );
    const pickle = stateDict([
      ['p', parameter],
      ['epoch', pickled.whole(3)],
      ['none', pickledNone],
    ]);
    expect(readTorchFile(write(withPickle(pickle))).entries.map(({ name }) => name)).toEqual(['p']);
  });

  it.each([
    ['system', pickled.call(pickled.global('posix', 'system'), pickled.tuple(pickled.text('true'))), '"posix.system"'],
    ['eval', pickled.call(pickled.global('builtins', 'eval'), pickled.tuple(pickled.text('1'))), '"builtins.eval"'],
    ['another rebuild', pickled.global('torch._utils', '_rebuild_sparse_tensor'), 'which is not on the list'],
    ['objects', Buffer.from('(iposix\nsystem\n'), 'opcode 0x69'],
    ['instances', Buffer.from([0x29, 0x81]), 'opcode 0x81'],
  ])('refuses a pickle that would run code: %s', (_, value, wanted) => {
    const message = refusal(withPickle(stateDict([['a', value]])));
    expect(message).toContain('data.pkl: ');
    expect(message).toContain(wanted);
  });

  it.each([
    ['', 'truncated at byte 0'],
    ['t', 'it closes a list that was not opened'],
    ['0', 'it takes a value that is not there'],
    ['h\u0005.', 'it recalls value 5, which it did not remember'],
    ['N.', 'expected a dictionary of tensors'],
    ['}.', 'no tensor at the top of its dictionary'],
    ['NQ.', 'a storage is not described as torch.save does it'],
    ['NNR.', 'it calls what is no function'],
    ['NNNs.', 'it sets items of what is no dictionary'],
    ['X\u00ff\u00ff\u00ff\u007f', 'truncated at byte'],
  ])('refuses a pickle that is none: %j', (pickle, wanted) => {
    expect(refusal(withPickle(Buffer.from(pickle, 'latin1')))).toContain(wanted);
  });

  const MANY: readonly (readonly [string, Buffer, string])[] = [
    ['dictionaries', Buffer.alloc(1 << 20, '}'), 'more than 524288 texts, tuples, lists and dictionaries'],
    ['tuples', Buffer.from(`)${'\u0085'.repeat(1 << 20)}`, 'latin1'), 'more than 524288 texts, tuples'],
    ['empty texts', Buffer.concat(Array<Buffer>(1 << 20).fill(Buffer.from('\u008c\0', 'latin1'))), 'more than 524288'],
    ['places in the memo', Buffer.from(`}${'\u0094'.repeat(1 << 20)}`, 'latin1'), 'remembers more than 524288 values'],
    ['operations', Buffer.from('N0'.repeat(1 << 22), 'latin1'), 'more than 4194304 operations'],
  ];
  it.each(casesHere(MANY, 1))('refuses a pickle of too many %s', (_, pickle, wanted) => {
    expect(refusal(withPickle(pickle))).toContain(wanted);
  });

  it.each<[string, Partial<WrittenTensor>, string]>([
    ['more than its storage', { shape: [2, 4] }, '[2,4] from element 0 on is more than its storage holds'],
    ['beyond its storage', { offset: 1 }, 'from element 1 on is more'],
    ['a negative offset', { offset: -1 }, 'a tensor starts at element -1 of its storage "0"'],
    ['transposed', { shape: [3, 2], strides: [1, 3] }, 'its rows do not lie one after another'],
    ['overlapping rows', { strides: [1, 1] }, 'its rows do not lie one after another'],
    ['a storage that is not there', { storage: '7' }, 'its storage "7" is not in the archive'],
    ['another size', { storage: '1' }, 'its storage has 4 bytes'],
    ['complex numbers', { type: 'ComplexFloatStorage' }, 'ComplexFloatStorage is not supported'],
  ])('refuses a tensor with %s', (name, changes, wanted) => {
    const pickle =
      name === 'another size' ? stateDict([['a', pickledTensor({ ...MATRIX, ...changes }, 6)]]) : undefined;
    const message = refusal(pickle === undefined ? withTensor(changes) : withPickle(pickle));
    expect(message).toContain(wanted);
  });

  it.each([
    ['compressed', torchFile(GOOD, STORAGES, { method: 8 }), 'entry "archive/data.pkl" is compressed'],
    ['twice', torchFile(GOOD, STORAGES, { more: [['archive/data/0', Buffer.from('x')]] }), 'occurs twice'],
    ['exported', torchFile(GOOD, STORAGES, { more: [['archive/constants.pkl', Buffer.from('x')]] }), 'TorchScript'],
    ['without a pickle', zip([['archive/version', Buffer.from('3')]]), 'expected one data.pkl'],
    [
      'with two',
      zip([
        ['a/data.pkl', Buffer.from('.')],
        ['b/data.pkl', Buffer.from('.')],
      ]),
      'found 2',
    ],
    ['no archive', Buffer.from('\u0080\u0002.', 'latin1'), 'no zip archive'],
    ['empty', Buffer.alloc(0), 'no zip archive'],
  ])('refuses a file that is %s', (_, content, wanted) => {
    expect(refusal(content)).toContain(wanted);
  });

  it('refuses numbers in another byte order', () => {
    const swapped = zip([
      ['archive/data.pkl', stateDict([['a', pickledTensor(MATRIX, 6)]])],
      ['archive/byteorder', Buffer.from('big')],
      ['archive/data/0', STORAGES['0']],
    ]);
    expect(refusal(swapped)).toContain('stored in "big" byte order');
  });

  it('refuses every file that is cut off, and no damaged byte leads outside the file', () => {
    const good = torchFile(GOOD, STORAGES, { has64Bits: true });
    for (let length = 0; length < good.length; length += 7) refusal(good.subarray(0, length));
    for (let at = 0; at < good.length; at += isThorough ? 1 : 3)
      for (const value of [0, 0xff, good[at]! ^ 0x10]) {
        const damaged = Buffer.from(good);
        damaged[at] = value;
        try {
          for (const { offset, byteLength } of readTorchFile(write(damaged)).entries)
            expect(offset + byteLength).toBeLessThanOrEqual(damaged.length);
        } catch (error) {
          expect(error).toBeInstanceOf(UserError);
        }
      }
  });
});
