/** Cubins of an artifact on a host without a CUDA compiler: used if they fit and the user trusts them. */
import { createHash } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { compileCudaKernels } from '../../driver/targets/cudaKernels.js';
import { packedCode, recordOf, type CodeRecord, type PackedCode } from '../../driver/targets/machineCode.js';
import { MissingCompiler } from '../../errors.js';
import type { CudaKernelText } from '../../ir/cuda.js';
import { PACK_SOURCE, PACK_SYMBOL } from '../../runtime/cuda/packKernels.js';

vi.mock('../../runtime/cuda/compiler.js', () => ({
  compileCubins: () => Promise.reject(new MissingCompiler('There is no CUDA compiler.', 'Install one.')),
}));

/** The head of a 64-bit ELF file of NVIDIA's machine type. */
function cubin(mark: number): Uint8Array {
  const bytes = new Uint8Array(64);
  bytes.set([0x7f, 0x45, 0x4c, 0x46, 2, 1]);
  bytes[18] = 190;
  bytes[63] = mark;
  return bytes;
}

const headers = [{ name: 'lib/a.cuh', text: '#pragma once' }];
const kernel = { symbol: 'k_one', source: '__global__ void k_one() {}', headers } as unknown as CudaKernelText;
const distinct = new Map([[kernel.symbol, kernel]]);
const files = new Map([
  ['k_one.cubin', cubin(1)],
  [`${PACK_SYMBOL}.cubin`, cubin(2)],
]);
const sound = recordOf(
  {
    machine: 'sm_80',
    compiler: 'NVRTC 12.4',
    units: [{ name: 'k_one.cu', text: kernel.source }, { name: `${PACK_SYMBOL}.cu`, text: PACK_SOURCE }, ...headers],
    files: [...files].map(([name, bytes]) => ({ name, bytes })),
  },
  7,
);

const packed = (change: Partial<CodeRecord> = {}, isTrusted = true, content = files): PackedCode =>
  packedCode(
    { ...sound, ...change },
    { isTrusted, abi: 7, where: 'm.tw', again: 'tilewright compile x', readFile: (name) => content.get(name)! },
  );
const open = (code: PackedCode | undefined, driverVersion = 12_040): ReturnType<typeof compileCudaKernels> =>
  compileCudaKernels({ distinct }, 'sm_80', { driverVersion, packed: code });

describe('cubins of an artifact, on a host without a compiler', () => {
  it('are used as they are', async () => {
    const { cubins, isUnpacked } = await open(packed());
    expect(isUnpacked).toBe(true);
    expect([...cubins.keys()]).toEqual(['k_one', PACK_SYMBOL]);
    expect(cubins.get('k_one')).toEqual(cubin(1));
  });

  it('are used only when asked for; otherwise the error says what --trust-code means', async () => {
    await expect(open(packed({}, false))).rejects.toMatchObject({
      message: 'There is no CUDA compiler.',
      hint: expect.stringMatching(/^Install one\.\n--trust-code runs .* with your rights, unchecked/) as string,
    });
    await expect(open(undefined)).rejects.toMatchObject({ hint: 'Install one.' });
  });

  it('are refused where a header has another text', async () => {
    const changed = { ...kernel, headers: [{ name: 'lib/a.cuh', text: '#pragma once\n' }] };
    const failure = compileCudaKernels({ distinct: new Map([['k_one', changed]]) }, 'sm_80', { packed: packed() });
    await expect(failure).rejects.toThrow('made of other kernels');
  });

  const notCode = Uint8Array.of(1, 2, 3);
  it.each<[string, PackedCode, RegExp, number?]>([
    ['of another architecture', packed({ machine: 'sm_90a' }), /made for sm_90a, this is sm_80/],
    ['of another kernel ABI', packed({ abi: 6 }), /kernel ABI 6, this tilewright has 7/],
    ['of other sources', packed({ sources: '0'.repeat(64) }), /made of other kernels/],
    ['by a newer CUDA than the driver has', packed({ compiler: 'NVRTC 13.0' }), /13\.0 is too new for the GPU driver/],
    ['by nobody knows what', packed({ compiler: 'cc' }), /its compiler is not known/],
    ['that are not listed', packed({ files: {} }), /k_one\.cubin is not listed in the manifest/],
    [
      'that are damaged',
      packed({}, true, new Map(files).set('k_one.cubin', cubin(9))),
      /k_one\.cubin has hash .*damaged/,
    ],
    [
      'that are none',
      packed(
        { files: { ...sound.files, 'k_one.cubin': createHash('sha256').update(notCode).digest('hex') } },
        true,
        new Map(files).set('k_one.cubin', notCode),
      ),
      /k_one\.cubin is no cubin/,
    ],
  ])('%s are refused', async (_, code, expected) => {
    const failure = open(code);
    await expect(failure).rejects.toThrow(expected);
    await expect(failure).rejects.toMatchObject({ hint: 'tilewright compile x' });
  });
});
