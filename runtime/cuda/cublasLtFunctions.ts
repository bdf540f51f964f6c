/** cuBLASLt's functions as koffi calls them. */
import type { KoffiFunc } from 'koffi';
import { loadKoffi } from './loadKoffi.js';

/** An opaque pointer, as koffi hands it out. */
export type Pointer = unknown;
export type Status = number;

/** The functions that contractions need. */
export interface CublasLtFunctions {
  readonly getVersion: KoffiFunc<() => number | bigint>;
  readonly getCudartVersion: KoffiFunc<() => number | bigint>;
  readonly create: KoffiFunc<(handle: Pointer[]) => Status>;
  readonly destroy: KoffiFunc<(handle: Pointer) => Status>;
  readonly descCreate: KoffiFunc<(desc: Pointer[], compute: number, scale: number) => Status>;
  readonly descDestroy: KoffiFunc<(desc: Pointer) => Status>;
  readonly descSet: KoffiFunc<(desc: Pointer, attribute: number, value: Int32Array, bytes: number) => Status>;
  readonly layoutCreate: KoffiFunc<
    (layout: Pointer[], type: number, rows: number, columns: number, ld: number) => Status
  >;
  readonly layoutDestroy: KoffiFunc<(layout: Pointer) => Status>;
  readonly preferenceCreate: KoffiFunc<(preference: Pointer[]) => Status>;
  readonly preferenceDestroy: KoffiFunc<(preference: Pointer) => Status>;
  readonly preferenceSet: KoffiFunc<
    (preference: Pointer, attribute: number, value: BigUint64Array, bytes: number) => Status
  >;
  readonly heuristic: KoffiFunc<
    (
      handle: Pointer,
      desc: Pointer,
      a: Pointer,
      b: Pointer,
      c: Pointer,
      d: Pointer,
      preference: Pointer,
      most: number,
      results: Uint8Array,
      count: Int32Array,
    ) => Status
  >;
  readonly configGet: KoffiFunc<
    (algorithm: Uint8Array, attribute: number, value: Int32Array, bytes: number, written: BigUint64Array) => Status
  >;
  readonly matmul: KoffiFunc<
    (
      handle: Pointer,
      desc: Pointer,
      alpha: Float32Array,
      a: bigint,
      layoutA: Pointer,
      b: bigint,
      layoutB: Pointer,
      beta: Float32Array,
      c: bigint,
      layoutC: Pointer,
      d: bigint,
      layoutD: Pointer,
      algorithm: Uint8Array,
      workspace: bigint,
      bytes: number,
      stream: bigint,
    ) => Status
  >;
}

/** Loads the library at `path`. Throws where it is none. */
export function bindCublasLt(path: string): CublasLtFunctions {
  const library = loadKoffi().load(path);
  return {
    getVersion: library.func('size_t cublasLtGetVersion(void)'),
    getCudartVersion: library.func('size_t cublasLtGetCudartVersion(void)'),
    create: library.func('int cublasLtCreate(_Out_ void **handle)'),
    destroy: library.func('int cublasLtDestroy(void *handle)'),
    descCreate: library.func('int cublasLtMatmulDescCreate(_Out_ void **desc, int computeType, int scaleType)'),
    descDestroy: library.func('int cublasLtMatmulDescDestroy(void *desc)'),
    descSet: library.func(
      'int cublasLtMatmulDescSetAttribute(void *desc, int attr, const int32_t *value, size_t bytes)',
    ),
    layoutCreate: library.func(
      'int cublasLtMatrixLayoutCreate(_Out_ void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld)',
    ),
    layoutDestroy: library.func('int cublasLtMatrixLayoutDestroy(void *layout)'),
    preferenceCreate: library.func('int cublasLtMatmulPreferenceCreate(_Out_ void **pref)'),
    preferenceDestroy: library.func('int cublasLtMatmulPreferenceDestroy(void *pref)'),
    preferenceSet: library.func(
      'int cublasLtMatmulPreferenceSetAttribute(void *pref, int attr, const uint64_t *value, size_t bytes)',
    ),
    heuristic: library.func(
      'int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, ' +
        'void *pref, int most, _Out_ uint8_t *results, _Out_ int *count)',
    ),
    configGet: library.func(
      'int cublasLtMatmulAlgoConfigGetAttribute(const uint8_t *algo, int attr, ' +
        '_Out_ int32_t *value, size_t bytes, _Out_ uint64_t *written)',
    ),
    matmul: library.func(
      'int cublasLtMatmul(void *handle, void *desc, const float *alpha, ' +
        'uintptr_t a, void *la, uintptr_t b, void *lb, const float *beta, ' +
        'uintptr_t c, void *lc, uintptr_t d, void *ld, const uint8_t *algo, ' +
        'uintptr_t workspace, size_t bytes, uintptr_t stream)',
    ),
  };
}
