/**
 * The device code that lays out weights, run as C++, gives the same bits as the CPU's packer and its slow reference.
 */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WeightDecl } from '../../../ir/kernel.js';
import { logicalWeight, type RawTensor } from '../../../ir/logicalWeight.js';
import { packedBytes, packedDepth, physicalToLogical } from '../../../ir/packing.js';
import { FORMAT_NAMES, type FormatName, FORMATS, isFormatIn } from '../../../ir/storage.js';
import { loadAddon } from '../../../runtime/addon.js';
import { codesJob, type DeviceJob, findJob, JOB_BYTES, packJob } from '../../../runtime/cuda/packJob.js';
import { PACK_ENTRIES, PACK_SOURCE } from '../../../runtime/cuda/packKernels.js';
import type { NativeMemory } from '../../../runtime/native.js';
import type { TensorSource } from '../../../runtime/tensorSource.js';
import { isThorough } from '../../support/thorough.js';
import { temporaryFolder } from '../kernels.js';
import {
  bitsFloat,
  floatBits,
  type Matrix,
  normalize,
  packReference,
  randomStored,
  randomValue,
  roundTo,
  toBf16,
  toF16,
} from '../packReference.js';
import { randomShapes } from '../randomShapes.js';
import { buildPackShim, hasCxx } from './packShim.js';

const isPossible = hasCxx();
if (!isPossible) process.stderr.write('SKIPPED: device packing as C++: no g++ on PATH\n');

const formats = fc.constantFrom(...FORMAT_NAMES);
const shapes = randomShapes(1, 4, 8, 16, 32);

describe.skipIf(!isPossible)('device packing, as C++', () => {
  const { Memory, Pool, pack } = loadAddon();
  const shim = buildPackShim(temporaryFolder());
  const memoryOf = (bytes: Uint8Array): NativeMemory => {
    const memory = new Memory(Math.max(64, bytes.length));
    memory.write(0, bytes);
    return memory;
  };
  const launch = (
    symbol: string,
    { bytes, launch: shape }: DeviceJob,
    pointers: readonly bigint[],
    sizes: readonly number[] = [],
  ): void => shim.run(symbol, shape, sizes, [memoryOf(bytes).address, ...pointers]);

  /** Random stored bits, NaN, infinities and denormals included. */
  function stored(
    format: FormatName,
    rows: number,
    k: number,
    seed: number,
  ): { memory: NativeMemory; tensor: TensorSource; matrix: Matrix } {
    const { bytes, matrix } = randomStored(format, rows, k, seed);
    return {
      memory: memoryOf(bytes),
      matrix,
      tensor: {
        kind: 'file',
        format,
        shape: [rows, k],
        file: '',
        offset: 0,
        byteLength: FORMATS[format].bytes(rows, k),
      },
    };
  }

  /** Packs in ranges of `step` rows into memory full of garbage, as weights.ts does, and checks the bytes around it. */
  function packDevice(
    weight: WeightDecl,
    sources: readonly { tensor: TensorSource; memory?: NativeMemory }[],
    step: number,
    scale?: Float32Array,
  ): number[] {
    const map = physicalToLogical(weight);
    const bytes = packedBytes(weight, map.length);
    const target = memoryOf(new Uint8Array(bytes + 64).fill(0xa5));
    const scales = scale && memoryOf(new Uint8Array(scale.buffer));
    const rowBytes = bytes / map.length;
    const padding = map.indexOf(-1);
    if (padding >= 0) target.write(padding * rowBytes, new Uint8Array(bytes - padding * rowBytes));
    let sourceRow = 0;
    sources.forEach(({ tensor, memory }, i) => {
      const { rows } = weight.sources[i]!;
      for (let firstRow = 0; firstRow < rows; firstRow += step) {
        const source =
          memory === undefined ? 0n : memory.address + BigInt(FORMATS[tensor.format].bytes(firstRow, weight.k));
        const job = packJob(weight, {
          tensor,
          firstRow,
          rows: Math.min(step, rows - firstRow),
          sourceRow,
          isScaled: scales !== undefined,
        });
        launch(PACK_ENTRIES.rows, job, [source, target.address, scales?.address ?? 0n]);
      }
      sourceRow += rows;
    });
    expect(
      new Uint8Array(target.read(bytes, 64)).every((byte) => byte === 0xa5),
      'bytes after the target',
    ).toBe(true);
    const packed = target.read(0, bytes);
    return [...(weight.format === 'f32' ? new Uint32Array(packed) : new Uint16Array(packed))];
  }

  it('has the structs that packJob writes', () => {
    expect(shim.jobBytes).toEqual([112, 24]);
    expect(JOB_BYTES).toBe(112);
  });

  it('rounds matrices to codes of E4M3 with a scale for each row', () => {
    const check = (
      format: FormatName,
      { rows, pairing }: { rows: readonly number[]; pairing: WeightDecl['pairing'] },
      k: number,
      isScaled: boolean,
      step: number,
    ): void => {
      const common = { k, pairing, sources: rows.map((n, i) => ({ tensor: `t${i}`, rows: n })) };
      const codes: WeightDecl = {
        ...{ name: 'w', layout: 'kmajor', format: 'e4m3', ...common },
        ...(isScaled ? { columnScale: 'norm' } : {}),
      };
      const scale = Float32Array.from({ length: k }, (_, i) => randomValue(5n, i, 1));
      const value = (source: number, i: number): number => roundTo(format, randomValue(BigInt(source), i, 0.02));
      const tensors = new Map<string, RawTensor>([
        ['norm', { rows: 1, columns: k, data: Float64Array.from(scale) }],
        ...rows.map((n, i): [string, RawTensor] => [
          `t${i}`,
          { rows: n, columns: k, data: Float64Array.from({ length: n * k }, (_, at) => value(i, at)) },
        ]),
      ]);
      const map = physicalToLogical(codes);
      const stride = packedDepth(codes);
      const wanted = new Uint8Array(map.length * stride);
      const encoded = FORMATS.e4m3.encode(logicalWeight(codes, tensors, true));
      map.forEach((from, to) => {
        if (from >= 0) wanted.set(encoded.subarray(from * k, (from + 1) * k), to * stride);
      });
      const target = memoryOf(new Uint8Array(wanted.length));
      const factors = memoryOf(new Uint8Array(scale.buffer));
      const scalesOf = (source: number): WeightDecl => ({
        ...{ name: 's', layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' } },
        ...{ sources: [common.sources[source]!], scalesOf: { format: 'e4m3', k } },
        ...(isScaled ? { columnScale: 'norm' } : {}),
      });
      const found = rows.map((n) => memoryOf(new Uint8Array(4 * n)));
      /** Codes with or without their scales, or scales alone. */
      const lay = (weight: WeightDecl, source: number, parts: readonly ('codes' | 'scales')[]): void => {
        const n = rows[source]!;
        const sourceRow = source === 0 || weight !== codes ? 0 : rows[0]!;
        for (let firstRow = 0; firstRow < n; firstRow += step) {
          const shape = [n, k] as const;
          const tensor: TensorSource = { kind: 'random', format: format, shape, seed: BigInt(source), scale: 0.02 };
          const range = { tensor, firstRow, rows: Math.min(step, n - firstRow), sourceRow, isScaled };
          const pointers = [0n, target.address, factors.address, found[source]!.address];
          launch(PACK_ENTRIES.codes, codesJob(weight, range, parts), pointers);
        }
      };
      const expectScales = (source: number): void => {
        const memory = found[source]!;
        const got = [...new Float32Array(memory.read(0, 4 * rows[source]!))];
        expect(got).toEqual([...logicalWeight(scalesOf(source), tensors, true)]);
        memory.write(0, new Uint8Array(4 * rows[source]!));
      };
      rows.forEach((_, i) => {
        lay(codes, i, ['codes']);
        expect(new Uint8Array(found[i]!.read(0, 4 * rows[i]!)).every((byte) => byte === 0)).toBe(true);
      });
      expect([...new Uint8Array(target.read(0, wanted.length))]).toEqual([...wanted]);
      target.write(0, new Uint8Array(wanted.length));
      rows.forEach((_, i) => {
        lay(scalesOf(i), i, ['scales']);
        expectScales(i);
      });
      expect(new Uint8Array(target.read(0, wanted.length)).every((byte) => byte === 0)).toBe(true);
      rows.forEach((_, i) => {
        lay(codes, i, ['codes', 'scales']);
        expectScales(i);
      });
      expect([...new Uint8Array(target.read(0, wanted.length))]).toEqual([...wanted]);
    };
    check('bf16', { rows: [40], pairing: { kind: 'none' } }, 52, true, 7);
    check('f32', { rows: [24, 24], pairing: { kind: 'interleave', width: 8 } }, 130, false, 50);
    check('f16', { rows: [64], pairing: { kind: 'rotate', headDim: 32, width: 8 } }, 31, false, 64);
  });

  it('rounds rows of any magnitude as the reference does', () => {
    const k = 77;
    const factors = [0, 1, 2 ** -149, 1e-40, 2 ** -60, 1e-18, 1e-17, 1e-5, 448, 2.6e20, 2.7e20, 1e30, 2 ** 127];
    const rows = factors.map((factor, row) =>
      Float32Array.from({ length: k }, (_, i) =>
        row % 3 === 2 && i > 0 ? 0 : factor * (row % 4 === 1 ? (i % 15) + 1 : randomValue(3n, row * k + i, 0.5)),
      ),
    );
    rows.push(
      Float32Array.from({ length: k }, (_, i) => (i === 0 ? 448 : i * 2 ** -14)),
      new Float32Array(k).fill(-0),
    );
    const data = Float32Array.from(rows.flatMap((row) => [...row]));
    const tensor: TensorSource = {
      ...{ kind: 'file', format: 'f32', shape: [rows.length, k], file: '', offset: 0 },
      byteLength: 4 * data.length,
    };
    const source = { tensor: 't', rows: rows.length };
    const codes: WeightDecl = {
      ...{ name: 'w', layout: 'kmajor', format: 'e4m3', k, pairing: { kind: 'none' }, sources: [source] },
    };
    const scales: WeightDecl = {
      ...{ name: 's', layout: 'rows', format: 'f32', k: 1, pairing: { kind: 'none' }, sources: [source] },
      scalesOf: { format: 'e4m3', k },
    };
    const raw = new Map([['t', { rows: rows.length, columns: k, data: Float64Array.from(data) }]]);
    const stride = packedDepth(codes);
    const target = memoryOf(new Uint8Array(stride * rows.length).fill(0xa5));
    const found = memoryOf(new Uint8Array(4 * rows.length));
    const range = { tensor, firstRow: 0, rows: rows.length, sourceRow: 0, isScaled: false };
    const job = codesJob(codes, range, ['codes', 'scales']);
    launch(PACK_ENTRIES.codes, job, [memoryOf(new Uint8Array(data.buffer)).address, target.address, 0n, found.address]);
    expect([...new Float32Array(found.read(0, 4 * rows.length))]).toEqual([...logicalWeight(scales, raw, true)]);
    const encoded = FORMATS.e4m3.encode(logicalWeight(codes, raw, true));
    const wanted = new Uint8Array(stride * rows.length);
    rows.forEach((_, row) => wanted.set(encoded.subarray(row * k, (row + 1) * k), row * stride));
    expect([...new Uint8Array(target.read(0, wanted.length))]).toEqual([...wanted]);
  });

  it('equals the reference for random shapes, pairings, formats, scales and row ranges', () => {
    const layouts = fc.constantFrom(
      ...(['rows', 'kmajor'] as const).flatMap((layout) =>
        FORMAT_NAMES.filter((format) => isFormatIn(layout, format)).map((format) => ({ layout, format })),
      ),
    );
    fc.assert(
      fc.property(
        layouts,
        shapes,
        formats,
        fc.integer({ min: 1, max: 300 }),
        fc.integer({ min: 0, max: 1 << 30 }),
        fc.boolean(),
        fc.integer({ min: 1, max: 80 }),
        (layout, { rows, pairing }, format, k, seed, isScaled, step) => {
          const weight: WeightDecl = {
            name: 'w',
            ...layout,
            k,
            pairing,
            sources: rows.map((n, i) => ({ tensor: `t${i}`, rows: n })),
          };
          const matrices = rows.map((n, i) => stored(format, n, k, seed + i));
          const scale = isScaled
            ? Float32Array.from({ length: k }, (_, i) =>
                bitsFloat((floatBits(randomValue(BigInt(seed) + 77n, i, 1)) * 2654435) >>> 0),
              )
            : undefined;
          const got = packDevice(weight, matrices, step, scale);
          const wanted = packReference(
            weight,
            matrices.map(({ matrix }) => matrix),
            scale && ((column) => scale[column]!),
          );
          expect(got.map((bits) => normalize(weight.format as FormatName, bits))).toEqual(
            wanted.map((bits) => normalize(weight.format as FormatName, bits)),
          );
        },
      ),
      { numRuns: isThorough ? 100 : 30 },
    );
  });

  it('makes the random weights of the CPU: same seed, same bits', async () => {
    const pool = new Pool(1);
    for (const format of ['f32', 'bf16', 'f16'] as const) {
      for (const [target, pairing] of [
        ['f32', { kind: 'none' }],
        ['bf16', { kind: 'interleave', width: 8 }],
        ['f16', { kind: 'rotate', headDim: 10, width: 5 }],
      ] as const) {
        const sources =
          pairing.kind === 'interleave'
            ? [
                { tensor: 'a', rows: 50 },
                { tensor: 'b', rows: 50 },
              ]
            : [{ tensor: 'a', rows: 50 }];
        const weight: WeightDecl = { name: 'w', layout: 'rows', format: target, k: 37, pairing, sources };
        const seeds = [0xdeadbeefcafef00dn, 3n];
        const map = physicalToLogical(weight);
        const bytes = packedBytes(weight, map.length);
        const memory = new Memory(bytes);
        await pack(pool, {
          layout: 'rows',
          format: FORMATS[target].code,
          k: 37,
          rowMap: map,
          target: { memory, offset: 0, bytes },
          sources: sources.map(({ rows }, i) => ({
            kind: 'random',
            format: FORMATS[format].code,
            rows,
            seed: seeds[i]!,
            scale: 0.02,
          })),
        });
        const wanted = memory.read(0, bytes);
        const got = packDevice(
          weight,
          sources.map(({ rows }, i) => ({
            tensor: { kind: 'random', format, shape: [rows, 37], seed: seeds[i]!, scale: 0.02 },
          })),
          17,
        );
        expect(got).toEqual([...(target === 'f32' ? new Uint32Array(wanted) : new Uint16Array(wanted))]);
      }
    }
  });

  it('counts past 2^32 in the flat index of a tensor', () => {
    const k = 1 << 16;
    const firstRow = (1 << 16) + 3;
    const weight: WeightDecl = {
      name: 'w',
      layout: 'rows',
      format: 'f32',
      k,
      pairing: { kind: 'none' },
      sources: [{ tensor: 't', rows: 1 }],
    };
    const target = new Memory(k * 4);
    const tensor: TensorSource = { kind: 'random', format: 'f32', shape: [1, k], seed: 5n, scale: 1 };
    launch(PACK_ENTRIES.rows, packJob(weight, { tensor, firstRow, rows: 1, sourceRow: 0, isScaled: false }), [
      0n,
      target.address - BigInt(firstRow * k * 4),
      0n,
    ]);
    const got = new Float32Array(target.read(0, 64));
    expect([...got]).toEqual(Array.from({ length: 16 }, (_, i) => randomValue(5n, firstRow * k + i, 1)));
  });

  it('fills with constants, rounded to the format of the tensor, zero in the padding', () => {
    const weight: WeightDecl = {
      name: 'w',
      layout: 'kmajor',
      format: 'bf16',
      k: 33,
      pairing: { kind: 'none' },
      sources: [{ tensor: 't', rows: 17 }],
    };
    const wanted = packReference(weight, [() => roundTo('f16', 1.2345)]);
    expect(
      packDevice(weight, [{ tensor: { kind: 'constant', format: 'f16', shape: [17, 33], value: 1.2345 } }], 5),
    ).toEqual(wanted);
  });

  it('rounds every bf16 tie and every f16 value as IEEE says', () => {
    const values = [
      0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0x00008000, 0x00018000, 0x80000000,
      0x7f800001, 0xffc00000, 1, 0x80000001,
    ]
      .concat(
        [
          65504,
          65519.99,
          65520,
          2 ** -24,
          2 ** -25,
          2 ** -25 * 1.0001,
          2 ** -14,
          2 ** -15 * 1.5,
          1 + 2 ** -11,
          1 + 3 * 2 ** -11,
        ].map(floatBits),
      )
      // Around every boundary between two subnormal halves, and the first normal one.
      .concat(
        Array.from({ length: 2050 }, (_, i) => i).flatMap((i) =>
          [-1, 0, 1].map((ulp) => Math.max(0, floatBits((i / 2) * 2 ** -24) + ulp)),
        ),
      );
    const memory = memoryOf(new Uint8Array(Uint32Array.from(values).buffer));
    for (const [format, encode] of [
      ['bf16', toBf16],
      ['f16', toF16],
    ] as const) {
      const weight: WeightDecl = {
        name: 'w',
        layout: 'rows',
        format,
        k: values.length,
        pairing: { kind: 'none' },
        sources: [{ tensor: 't', rows: 1 }],
      };
      const tensor: TensorSource = {
        kind: 'file',
        format: 'f32',
        shape: [1, values.length],
        file: '',
        offset: 0,
        byteLength: values.length * 4,
      };
      const got = packDevice(weight, [{ tensor, memory }], 1);
      expect(got.map((bits) => normalize(format, bits))).toEqual(
        values.map((bits) => normalize(format, encode(bitsFloat(bits)))),
      );
    }
  });

  it.each(['f32', 'f16', 'bf16'] as const)(
    'finds the first %s that is not finite, except −∞ where it may be an answer',
    (format) => {
      const encode = format === 'f32' ? floatBits : format === 'bf16' ? toBf16 : toF16;
      const [rows, columns, stride] = [5, 300, 310];
      const search = (
        bad: readonly [number, number, number][],
        allowsNegativeInfinity: boolean,
        searched = rows,
      ): bigint => {
        const bits = Array.from({ length: rows * stride }, (_, i) => encode((i % 7) - 3));
        for (const [row, column, value] of bad) bits[row * stride + column] = encode(value);
        const data = memoryOf(new Uint8Array((format === 'f32' ? Uint32Array : Uint16Array).from(bits).buffer));
        const found = memoryOf(new Uint8Array(16).fill(255));
        launch(
          PACK_ENTRIES.find,
          findJob({ index: 1, dtype: format, rows: 'T', columns, stride, allowsNegativeInfinity }, (extent) =>
            extent === 'T' ? rows : columns,
          ),
          [data.address, found.address],
          [searched, columns],
        );
        expect(new BigUint64Array(found.read(0, 8))[0]).toBe(2n ** 64n - 1n);
        return new BigUint64Array(found.read(8, 8))[0]!;
      };
      const none = 2n ** 64n - 1n;
      expect(search([], false)).toBe(none);
      expect(
        search(
          [
            [3, 299, NaN],
            [4, 0, Infinity],
          ],
          false,
        ),
      ).toBe(3n * 300n + 299n);
      expect(search([[4, 1, -Infinity]], false)).toBe(1201n);
      expect(search([[4, 1, -Infinity]], true)).toBe(none);
      expect(
        search(
          [
            [2, 300, NaN],
            [4, 1, NaN],
          ],
          true,
          4,
        ),
      ).toBe(none);
      expect(search([[3, 7, NaN]], true, 4)).toBe(907n);
    },
  );
});

const nvcc = spawnSync('nvcc', ['--version'], { stdio: 'ignore' }).status === 0;
if (!nvcc) process.stderr.write('SKIPPED: compiling the device packing for sm_80 and sm_90a: no nvcc on PATH\n');

describe.runIf(nvcc && isThorough)('device packing, by nvcc', () => {
  const TARGETS = [
    ['compute_80', 'sm_80'],
    ['compute_90a', 'sm_90a'],
  ] as const;
  it.each(TARGETS)('compiles for %s', (arch, code) => {
    const folder = temporaryFolder();
    const file = join(folder, 'pack.cu');
    writeFileSync(file, PACK_SOURCE);
    const { status, stderr } = spawnSync(
      'nvcc',
      [
        '-cubin',
        `-gencode=arch=${arch},code=${code}`,
        '-Xptxas',
        '-warn-spills',
        '-o',
        join(folder, 'pack.cubin'),
        file,
      ],
      { encoding: 'utf8' },
    );
    expect(stderr.trim()).toBe('');
    expect(status).toBe(0);
  });
});
