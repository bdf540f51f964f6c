/**
 * cuBLASLt through FFI: bare contractions, to measure generated kernels against. Numbers of enumerations and the layout
 * of the heuristic's answer are those of cublasLt.h, the same in CUDA 11 to 13.
 */
import { isAbsolute, resolve } from 'node:path';
import type { KoffiFunc } from 'koffi';
import { UserError } from '../../errors.js';
import type { Settings } from '../../settings.js';
import { below, cudaLibraryFolders } from './findNvrtc.js';
import { loadKoffi } from './loadKoffi.js';
import { type CudaVersion, driverCudaVersion, versionText } from './nvrtc.js';

/**
 * C[m, n] = A[m, k]·W[n, k]ᵀ, all row-major with rows `ld` elements apart. 16 bits are summed in f32; E4M3 as tensor
 * cores sum it, and stored as bf16.
 */
export interface CublasLtShape {
  readonly dtype: 'f16' | 'bf16' | 'e4m3';
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly lda: number;
  readonly ldw: number;
  readonly ldc: number;
}

/** Device addresses. */
export interface CublasLtOperands {
  readonly a: bigint;
  readonly w: bigint;
  readonly c: bigint;
}

/** One way to compute a contraction. */
export interface CublasLtAlgorithm {
  /** For people: its number, tile, stages. */
  readonly name: string;
  /** Enqueues it on the stream; the device's context must be current. Throws where the library refuses. */
  launch(
    operands: CublasLtOperands,
    workspace: { readonly address: bigint; readonly bytes: number },
    stream: bigint,
  ): void;
}

export interface CublasLtContraction {
  /** As the library's heuristic ranks them, best first. */
  readonly algorithms: readonly CublasLtAlgorithm[];
  release(): void;
}

export interface CublasLt {
  /** Such as 12.8.4 or 13.0.2. */
  readonly version: string;
  /** CUDA runtime it was built with. */
  readonly cuda: CudaVersion;
  /**
   * Asks for at most `most` algorithms within `workspaceBytes`. The device's context must be current. Throws where none
   * suits.
   */
  contraction(shape: CublasLtShape, workspaceBytes: number, most: number): CublasLtContraction;
  /** Gives the library's handle back. */
  release(): void;
}

const COMPUTE_32F = 68;
const R_32F = 0;
const TYPES: Readonly<Record<CublasLtShape['dtype'], number>> = { f16: 2, bf16: 14, e4m3: 28 };
const DESC_TRANSA = 3;
const DESC_TRANSB = 4;
const DESC_FAST_ACCUM = 25;
const OP_N = 0;
const OP_T = 1;
const PREF_MAX_WORKSPACE_BYTES = 1;
const CONFIG_ID = 0;
const CONFIG_TILE = 1;
const CONFIG_SPLIT_K = 2;
const CONFIG_STAGES = 6;

/** cublasLtMatmulHeuristicResult_t: 64 bytes of algorithm, size_t workspace, int state, float waves, int[4]. */
const RESULT_BYTES = 96;
const ALGORITHM_BYTES = 64;
const STATE_OFFSET = 72;

function check(call: string, status: CublasLtStatus): void {
  if (status !== 0) throw new Error(`${call} fails with cublasStatus ${status}`);
}

const created = (call: string, create: (out: Pointer[]) => CublasLtStatus): Pointer => {
  const out: Pointer[] = [null];
  check(call, create(out));
  return out[0];
};

class LoadedContraction implements CublasLtContraction {
  readonly algorithms: readonly CublasLtAlgorithm[];
  readonly #functions: CublasLtFunctions;
  readonly #made: (() => void)[] = [];

  constructor(
    functions: CublasLtFunctions,
    handle: Pointer,
    shape: CublasLtShape,
    workspaceBytes: number,
    most: number,
  ) {
    this.#functions = functions;
    try {
      const f = functions;
      const own = (pointer: Pointer, destroy: (pointer: Pointer) => CublasLtStatus): Pointer => {
        this.#made.push(() => void destroy(pointer));
        return pointer;
      };
      const type = TYPES[shape.dtype];
      const desc = own(
        created('cublasLtMatmulDescCreate', (out) => f.descCreate(out, COMPUTE_32F, R_32F)),
        f.descDestroy,
      );
      // Column-major in the library's eyes: D[n, m] = Wᵀ[n, k]·A[k, m], which is C row by row.
      check('cublasLtMatmulDescSetAttribute', f.descSet(desc, DESC_TRANSA, Int32Array.of(OP_T), 4));
      check('cublasLtMatmulDescSetAttribute', f.descSet(desc, DESC_TRANSB, Int32Array.of(OP_N), 4));
      if (shape.dtype === 'e4m3')
        check('cublasLtMatmulDescSetAttribute', f.descSet(desc, DESC_FAST_ACCUM, Int32Array.of(1), 1));
      const layout = (rows: number, columns: number, ld: number, of = type): Pointer =>
        own(
          created('cublasLtMatrixLayoutCreate', (out) => f.layoutCreate(out, of, rows, columns, ld)),
          f.layoutDestroy,
        );
      const layouts = {
        w: layout(shape.k, shape.n, shape.ldw),
        a: layout(shape.k, shape.m, shape.lda),
        c: layout(shape.n, shape.m, shape.ldc, shape.dtype === 'e4m3' ? TYPES.bf16 : type),
      };
      const preference = own(
        created('cublasLtMatmulPreferenceCreate', (out) => f.preferenceCreate(out)),
        f.preferenceDestroy,
      );
      check(
        'cublasLtMatmulPreferenceSetAttribute',
        f.preferenceSet(preference, PREF_MAX_WORKSPACE_BYTES, BigUint64Array.of(BigInt(workspaceBytes)), 8),
      );
      const results = new Uint8Array(most * RESULT_BYTES);
      const count = new Int32Array(1);
      check(
        'cublasLtMatmulAlgoGetHeuristic',
        f.heuristic(handle, desc, layouts.w, layouts.a, layouts.c, layouts.c, preference, most, results, count),
      );
      const found = Math.max(0, Math.min(most, count[0] ?? 0));
      const states = new DataView(results.buffer);
      const usable = Array.from({ length: found }, (_, i) => i * RESULT_BYTES).filter(
        (at) => states.getInt32(at + STATE_OFFSET, true) === 0,
      );
      if (usable.length === 0) throw new Error('cublasLtMatmulAlgoGetHeuristic knows no algorithm for it');
      const one = Float32Array.of(1),
        zero = Float32Array.of(0);
      this.algorithms = usable.map((at) => {
        const algorithm = results.slice(at, at + ALGORITHM_BYTES);
        return {
          name: this.#nameOf(algorithm),
          launch: ({ a, w, c }, workspace, stream) => {
            check(
              'cublasLtMatmul',
              f.matmul(
                handle,
                desc,
                one,
                w,
                layouts.w,
                a,
                layouts.a,
                zero,
                c,
                layouts.c,
                c,
                layouts.c,
                algorithm,
                workspace.address,
                workspace.bytes,
                stream,
              ),
            );
          },
        };
      });
    } catch (error) {
      this.release();
      throw error;
    }
  }

  release(): void {
    for (const destroy of this.#made.splice(0).reverse()) destroy();
  }

  #nameOf(algorithm: Uint8Array): string {
    const get = (attribute: number): number | undefined => {
      const value = new Int32Array(1);
      return this.#functions.configGet(algorithm, attribute, value, 4, new BigUint64Array(1)) === 0
        ? value[0]
        : undefined;
    };
    const splits = get(CONFIG_SPLIT_K) ?? 1;
    return (
      `algorithm ${get(CONFIG_ID) ?? '?'}, tile ${get(CONFIG_TILE) ?? '?'}, ` +
      `stages ${get(CONFIG_STAGES) ?? '?'}${splits > 1 ? `, ${splits} splits of k` : ''}`
    );
  }
}

class LoadedCublasLt implements CublasLt {
  readonly version: string;
  readonly cuda: CudaVersion;
  readonly #functions: CublasLtFunctions;
  #handle: Pointer;

  constructor(path: string) {
    this.#functions = bindCublasLt(path);
    // 120804 is 12.8.4.
    const version = Number(this.#functions.getVersion());
    this.version = `${Math.floor(version / 10_000)}.${Math.floor(version / 100) % 100}.${version % 100}`;
    const cuda = Number(this.#functions.getCudartVersion());
    this.cuda = { major: Math.floor(cuda / 1000), minor: Math.floor((cuda % 1000) / 10) };
  }

  contraction(shape: CublasLtShape, workspaceBytes: number, most: number): CublasLtContraction {
    this.#handle ??= created('cublasLtCreate', (out) => this.#functions.create(out));
    return new LoadedContraction(this.#functions, this.#handle, shape, workspaceBytes, most);
  }

  release(): void {
    if (this.#handle !== undefined) this.#functions.destroy(this.#handle);
    this.#handle = undefined;
  }
}

/**
 * Loads cuBLASLt from a path or a name that the system's loader knows. Throws an Error that says what is wrong with it.
 */
export const openCublasLt = (path: string): CublasLt => new LoadedCublasLt(path);

// cuBLASLt's functions as koffi calls them.

/** An opaque pointer, as koffi hands it out. */
export type Pointer = unknown;
export type CublasLtStatus = number;

/** The functions that contractions need. */
export interface CublasLtFunctions {
  readonly getVersion: KoffiFunc<() => number | bigint>;
  readonly getCudartVersion: KoffiFunc<() => number | bigint>;
  readonly create: KoffiFunc<(handle: Pointer[]) => CublasLtStatus>;
  readonly destroy: KoffiFunc<(handle: Pointer) => CublasLtStatus>;
  readonly descCreate: KoffiFunc<(desc: Pointer[], compute: number, scale: number) => CublasLtStatus>;
  readonly descDestroy: KoffiFunc<(desc: Pointer) => CublasLtStatus>;
  readonly descSet: KoffiFunc<(desc: Pointer, attribute: number, value: Int32Array, bytes: number) => CublasLtStatus>;
  readonly layoutCreate: KoffiFunc<
    (layout: Pointer[], type: number, rows: number, columns: number, ld: number) => CublasLtStatus
  >;
  readonly layoutDestroy: KoffiFunc<(layout: Pointer) => CublasLtStatus>;
  readonly preferenceCreate: KoffiFunc<(preference: Pointer[]) => CublasLtStatus>;
  readonly preferenceDestroy: KoffiFunc<(preference: Pointer) => CublasLtStatus>;
  readonly preferenceSet: KoffiFunc<
    (preference: Pointer, attribute: number, value: BigUint64Array, bytes: number) => CublasLtStatus
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
    ) => CublasLtStatus
  >;
  readonly configGet: KoffiFunc<
    (
      algorithm: Uint8Array,
      attribute: number,
      value: Int32Array,
      bytes: number,
      written: BigUint64Array,
    ) => CublasLtStatus
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
    ) => CublasLtStatus
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

// Finds an installed cuBLASLt. It is optional: the tuner only compares its kernels with it.

const LIBRARY = /^libcublasLt\.so((?:\.\d+)*)$/;
/** Newest first; what ldconfig knows. */
const DEFAULT_NAMES = ['libcublasLt.so.13', 'libcublasLt.so.12', 'libcublasLt.so.11', 'libcublasLt.so'] as const;
const WHEELS = /^(cu\d+|cublas)$/;

export interface FoundCublasLt {
  readonly library: CublasLt;
  readonly path: string;
}

const reasonOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).split('\n')[0] ?? '';

/**
 * The first cuBLASLt that loads and that the driver can run, or why there is none. Throws UserError where
 * TILEWRIGHT_CUBLASLT names something unusable. `none` there turns it off.
 */
export async function findCublasLt(driverVersion: number, settings: Settings): Promise<FoundCublasLt | string> {
  if (settings.cublasLt === 'none') return 'turned off by TILEWRIGHT_CUBLASLT';
  const named = settings.cublasLt === undefined ? undefined : resolve(settings.cublasLt);
  const folders = named === undefined ? await cudaLibraryFolders(settings, WHEELS) : [];
  const inFolders = await Promise.all(folders.map(async (folder) => (await below(folder, LIBRARY)).slice(0, 1)));
  const problems: string[] = [];
  const driver = driverCudaVersion(driverVersion);
  for (const path of named === undefined ? [...inFolders.flat(), ...DEFAULT_NAMES] : [named]) {
    try {
      const library = openCublasLt(path);
      if (library.cuda.major <= driver.major) return { library, path };
      problems.push(`${path} is for CUDA ${versionText(library.cuda)}, the driver for ${versionText(driver)}`);
    } catch (error) {
      if (isAbsolute(path)) problems.push(`${path}: ${reasonOf(error)}`);
    }
  }
  const reason = problems.length === 0 ? 'there is no libcublasLt.so' : [...new Set(problems)].join('; ');
  if (named !== undefined)
    throw new UserError(
      `TILEWRIGHT_CUBLASLT cannot be used: ${reason}.`,
      'Name another, or none: TILEWRIGHT_CUBLASLT=none',
    );
  return reason;
}
