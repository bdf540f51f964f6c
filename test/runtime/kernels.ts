/** Tiny kernels in C, with the code to run them, for the tests of the runtime. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';
import { loadAddon } from '../../runtime/addon.js';
import { compileShared } from '../../runtime/cpu/compiler.js';
import type { NativeLibrary } from '../../runtime/native.js';
import { readSettings, type Settings } from '../../settings.js';

export const ABI_TEXT = readFileSync(fileURLToPath(new URL('../../runtime/native/abi.h', import.meta.url)), 'utf8');

/** A folder that is removed after the tests of the file. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-test-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Settings that name a cache. */
export type CachedSettings = Settings & { readonly cacheDir: string };

export const settingsIn = (cacheDir: string, extra: Omit<Partial<Settings>, 'cacheDir'> = {}): CachedSettings => ({
  ...readSettings(),
  cacheDir,
  ...extra,
});

/**
 * - tw_fill: buffers[0] (f32 in) + 1 → buffers[1], rows taken through the work counter, T elements.
 * - tw_double: buffers[0] → 2·buffers[0] in place, rows split by worker.
 * - tw_index: buffers[0] (i32 tokens) → f32.
 * - tw_scratch: each worker writes its number to its scratch; buffers[0][w] = what it finds there.
 * - tw_poison: buffers[0] element T − 1 becomes NaN.
 * - tw_gate: waits until buffers[0] (i32[1]) is not 0.
 * - tw_sizes: buffers[0] (i32[2]) = the first two extents.
 * - tw_out: buffers[0] (i32 rows) → buffers[1] f32 (−row), buffers[2] i32 (row odd).
 */
export const KERNELS = `${ABI_TEXT}
#include <math.h>
void tw_fill(const tw_launch *l, int32_t worker, int32_t workers) {
  const float *in = l->buffers[0];
  float *out = l->buffers[1];
  (void)worker; (void)workers;
  for (int64_t i; (i = __atomic_fetch_add(l->next, 1, __ATOMIC_RELAXED)) < l->extents[0];) out[i] = in[i] + 1;
}
void tw_double(const tw_launch *l, int32_t worker, int32_t workers) {
  float *x = l->buffers[0];
  for (int64_t i = worker; i < l->extents[0]; i += workers) x[i] *= 2;
}
void tw_index(const tw_launch *l, int32_t worker, int32_t workers) {
  const int32_t *in = l->buffers[0];
  float *out = l->buffers[1];
  for (int64_t i = worker; i < l->extents[0]; i += workers) out[i] = (float)in[i];
}
void tw_scratch(const tw_launch *l, int32_t worker, int32_t workers) {
  float *mine = (float *)(l->scratch + worker * l->scratch_bytes);
  for (int64_t i = 0; i < l->scratch_bytes / 4; i++) mine[i] = (float)(worker + 1);
  ((float *)l->buffers[0])[worker] = mine[l->scratch_bytes / 4 - 1];
  (void)workers;
}
void tw_poison(const tw_launch *l, int32_t worker, int32_t workers) {
  if (worker == 0) ((float *)l->buffers[0])[l->extents[0] - 1] = NAN;
  (void)workers;
}
void tw_gate(const tw_launch *l, int32_t worker, int32_t workers) {
  while (worker == 0 && __atomic_load_n((int32_t *)l->buffers[0], __ATOMIC_ACQUIRE) == 0) {}
  (void)workers;
}
void tw_sizes(const tw_launch *l, int32_t worker, int32_t workers) {
  int32_t *out = l->buffers[0];
  if (worker == 0) out[0] = (int32_t)l->extents[0], out[1] = (int32_t)l->extents[1];
  (void)workers;
}
void tw_out(const tw_launch *l, int32_t worker, int32_t workers) {
  const int32_t *rows = l->buffers[0];
  float *a = l->buffers[1];
  int32_t *b = l->buffers[2];
  for (int64_t i = worker; i < l->extents[1]; i += workers) { a[i] = -(float)rows[i]; b[i] = rows[i] & 1; }
}
`;

/** Compiles KERNELS (cached in `cacheDir`) and loads them. */
export async function loadKernels(cacheDir: string): Promise<NativeLibrary> {
  const { path } = await compileShared([{ name: 'kernels.c', text: KERNELS }], {
    isa: 'portable',
    settings: settingsIn(cacheDir),
  });
  const { Library } = loadAddon();
  return new Library(path);
}
