/** cuBLASLt's interface, tested on a stand-in that records its calls. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import koffi from 'koffi';
import { afterAll, describe, expect, it } from 'vitest';
import { findCublasLt, openCublasLt } from '../../../runtime/cuda/cublasLt.js';
import { loadKoffi } from '../../../runtime/cuda/loadKoffi.js';
import { hasCc, isolated } from './fakeCompilers.js';

/** A library with three algorithms, the second of them unusable, that multiplies 16-bit integers. */
const SOURCE = `
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#ifndef CUDA
#define CUDA 13000
#endif
typedef struct { int type; uint64_t rows, cols; int64_t ld; } Layout;
typedef struct { int compute, scale, transA, transB; } Desc;
typedef struct { uint64_t data[8]; size_t workspace; int state; float waves; int reserved[4]; } Result;
static uint64_t limit; static int live; static Desc lastDesc; static uint64_t lastStream, lastWorkspace;
static Desc descs[64]; static Layout layouts[64]; static int nd, nl;
int live_count(void) { return live; }
uint64_t last(int what) {
  return what == 0 ? limit : what == 1 ? lastStream : what == 2 ? lastWorkspace : (uint64_t)lastDesc.compute;
}
size_t cublasLtGetVersion(void) { return 130002; }
size_t cublasLtGetCudartVersion(void) { return CUDA; }
int cublasLtCreate(void **h) { live++; *h = &nd; return 0; }
int cublasLtDestroy(void *h) { live--; return h != &nd; }
int cublasLtMatmulDescCreate(void **d, int compute, int scale) {
  live++; descs[nd] = (Desc){compute, scale, 0, 0}; *d = &descs[nd++];
  return 0;
}
int cublasLtMatmulDescDestroy(void *d) { live--; return d == 0; }
int cublasLtMatmulDescSetAttribute(void *d, int attr, const int32_t *v, size_t bytes) {
  if (bytes != 4 || (attr != 3 && attr != 4)) return 7;
  *(attr == 3 ? &((Desc *)d)->transA : &((Desc *)d)->transB) = *v;
  return 0;
}
int cublasLtMatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  live++; layouts[nl] = (Layout){type, rows, cols, ld}; *l = &layouts[nl++];
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *l) { live--; return l == 0; }
int cublasLtMatmulPreferenceCreate(void **p) { live++; *p = &limit; return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { live--; return p == 0; }
int cublasLtMatmulPreferenceSetAttribute(void *p, int attr, const uint64_t *v, size_t bytes) {
  if (attr != 1 || bytes != 8) return 7;
  *(uint64_t *)p = *v;
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *h, Desc *d, Layout *a, Layout *b, Layout *c, Layout *dd, void *p, int most,
                                   Result *r, int *count) {
  if (a->rows > 1000) { *count = 0; return 0; }
  *count = most < 3 ? most : 3;
  memset(r, 0, (size_t)*count * sizeof *r);
  for (int i = 0; i < *count; i++) { r[i].data[0] = 60 + i; r[i].state = i == 1 ? 15 : 0; }
  return h != &nd || !d || !b || !c || c != dd || !p;
}
int cublasLtMatmulAlgoConfigGetAttribute(const uint64_t *algo, int attr, int32_t *v, size_t bytes, uint64_t *written) {
  *v = attr == 0 ? (int)algo[0] : attr == 2 ? 4 : attr; *written = bytes; return 0;
}
int cublasLtMatmul(void *h, Desc *d, const float *alpha, const uint16_t *a, Layout *la, const uint16_t *b, Layout *lb,
                   const float *beta, uint16_t *c, Layout *lc, uint16_t *out, Layout *ld, const uint64_t *algo,
                   uint64_t workspace, size_t bytes, uint64_t stream) {
  if (*alpha != 1 || *beta != 0 || c != out || lc != ld || d->transA != 1 || d->transB != 0 || bytes > limit) return 7;
  if (algo[0] == 62) return 14;
  lastDesc = *d; lastStream = stream; lastWorkspace = workspace;
  /* column-major: out[i + j ld] = sum over k of a[k + i ld] b[k + j ld] */
  for (uint64_t i = 0; i < lc->rows; i++) for (uint64_t j = 0; j < lc->cols; j++) {
    unsigned sum = 0;
    for (uint64_t k = 0; k < la->rows; k++) sum += a[k + i * la->ld] * b[k + j * lb->ld];
    out[i + j * lc->ld] = (uint16_t)sum;
  }
  return h != &nd;
}
`;

const folder = mkdtempSync(join(tmpdir(), 'tilewright-cublaslt-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function make(path: string, defines: readonly string[] = []): string {
  mkdirSync(dirname(path), { recursive: true });
  const source = join(folder, 'cublasLt.c');
  writeFileSync(source, SOURCE);
  const { status, stderr } = spawnSync('cc', ['-shared', '-fPIC', '-O1', ...defines, '-o', path, source], {
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return path;
}

if (!hasCc) console.warn("SKIPPED cuBLASLt's interface: there is no cc to build its stand-in with.");
describe.skipIf(!hasCc)('cuBLASLt', () => {
  const path = hasCc ? make(join(folder, 'a', 'libcublasLt.so.13')) : '';

  it('computes A·Wᵀ row by row with the algorithms that the heuristic calls usable', () => {
    const fake = loadKoffi().load(path);
    const last = fake.func('uint64_t last(int)'),
      live = fake.func('int live_count(void)');
    const library = openCublasLt(path);
    expect(library.version).toBe('13.0.2');
    expect(library.cuda).toEqual({ major: 13, minor: 0 });
    const [m, n, k, lda, ldw, ldc] = [3, 2, 4, 5, 6, 7];
    const contraction = library.contraction({ dtype: 'bf16', m, n, k, lda, ldw, ldc }, 4096, 8);
    expect(contraction.algorithms.map(({ name }) => name)).toEqual([
      'algorithm 60, tile 1, stages 6, 4 splits of k',
      'algorithm 62, tile 1, stages 6, 4 splits of k',
    ]);
    const a = Uint16Array.from({ length: m * lda }, (_, i) => i + 1),
      w = Uint16Array.from({ length: n * ldw }, (_, i) => 2 * i + 1),
      c = new Uint16Array(m * ldc).fill(9);
    const operands = { a: koffi.address(a), w: koffi.address(w), c: koffi.address(c) };
    contraction.algorithms[0]!.launch(operands, { address: 77n, bytes: 4096 }, 123n);
    const expected = new Uint16Array(m * ldc).fill(9);
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++)
        expected[i * ldc + j] = Array.from({ length: k }, (_, l) => a[i * lda + l]! * w[j * ldw + l]!).reduce(
          (x, y) => x + y,
        );
    expect(c).toEqual(expected);
    expect([0, 1, 2, 3].map((what) => Number(last(what)))).toEqual([4096, 123, 77, 68]);
    expect(() => {
      contraction.algorithms[1]!.launch(operands, { address: 0n, bytes: 0 }, 0n);
    }).toThrow('cublasStatus 14');
    contraction.release();
    expect(() =>
      library.contraction({ dtype: 'f16', m: 8, n: 8, k: 2000, lda: 2000, ldw: 2000, ldc: 8 }, 0, 8),
    ).toThrow('knows no algorithm');
    library.release();
    expect(Number(live())).toBe(0);
  });

  it('is found in LD_LIBRARY_PATH, wheels and by the setting, unless the driver is too old for it', async () => {
    const wheel = make(
      join(folder, 'prefix', 'lib', 'python3.12', 'site-packages', 'nvidia', 'cu13', 'lib', 'libcublasLt.so.13'),
    );
    const old = make(
      join(folder, 'prefix', 'lib', 'python3.12', 'site-packages', 'nvidia', 'cublas', 'lib', 'libcublasLt.so.12'),
      ['-DCUDA=12080'],
    );
    const where = async (driver: number, change: Parameters<typeof isolated>[1]): Promise<string> => {
      const found = await findCublasLt(driver, isolated(folder, change));
      return typeof found === 'string' ? found : found.path;
    };
    const pythonPrefixes = [join(folder, 'prefix')];
    expect(await where(13_000, { libraryPath: dirname(path), pythonPrefixes })).toBe(path);
    expect(await where(13_000, { libraryPath: '', pythonPrefixes })).toBe(wheel);
    expect(await where(12_080, { libraryPath: '', pythonPrefixes })).toBe(old);
    expect(await where(13_000, { libraryPath: '', pythonPrefixes, cublasLt: 'none' })).toContain('turned off');
    expect(await where(13_000, { libraryPath: '', cublasLt: old })).toBe(old);
    await expect(where(12_080, { libraryPath: '', cublasLt: wheel })).rejects.toThrow(
      'is for CUDA 13.0, the driver for 12.8',
    );
    await expect(where(12_080, { libraryPath: '', cublasLt: join(folder, 'absent.so') })).rejects.toThrow(
      'TILEWRIGHT_CUBLASLT cannot be used',
    );
  });
});
