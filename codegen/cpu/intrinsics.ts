/** The table of vector intrinsics: what a register tile needs, for each instruction set. */
import type { CpuIsa } from '../../ir/plan.js';
import type { FORMATS, FormatIn } from '../../ir/storage.js';

/** Element types that panels hold. */
export type PanelElement = (typeof FORMATS)[FormatIn<'panels'>]['element'];

export interface VectorIsa {
  /** C type of a vector (several registers for `portable`). */
  readonly vector: string;
  readonly lanes: number;
  readonly zero: string;
  readonly load: string;
  readonly store: string;
  readonly broadcast: string;
  /** a·b + c */
  readonly fma: string;
  /** Loads a vector of f32 from elements of panels, widening narrower ones. */
  readonly loadPanel: Readonly<Record<PanelElement, string>>;
  /** Number of registers. Accumulators, columns and one broadcast must fit. */
  readonly registers: number;
}

const AVX512: VectorIsa = {
  vector: '__m512',
  lanes: 16,
  registers: 32,
  zero: '_mm512_setzero_ps()',
  load: '_mm512_loadu_ps',
  store: '_mm512_storeu_ps',
  broadcast: '_mm512_set1_ps',
  fma: '_mm512_fmadd_ps',
  loadPanel: { f32: '_mm512_loadu_ps', bf16: '(__m512)tw_load_bf16', f16: '(__m512)tw_load_f16' },
};

/** `amx` multiplies tiles of bf16, or of bytes; its vector arithmetic is AVX-512. */
export const VECTOR_ISAS: Readonly<Record<CpuIsa, VectorIsa>> = {
  portable: {
    vector: 'tw_v',
    lanes: 16,
    registers: 8,
    zero: 'tw_set1(0.0f)',
    load: 'tw_load',
    store: 'tw_store',
    broadcast: 'tw_set1',
    fma: 'tw_fma',
    loadPanel: { f32: 'tw_load', bf16: 'tw_load_bf16', f16: 'tw_load_f16' },
  },
  avx2: {
    vector: '__m256',
    lanes: 8,
    registers: 16,
    zero: '_mm256_setzero_ps()',
    load: '_mm256_loadu_ps',
    store: '_mm256_storeu_ps',
    broadcast: '_mm256_set1_ps',
    fma: '_mm256_fmadd_ps',
    loadPanel: { f32: '_mm256_loadu_ps', bf16: 'tw_load8_bf16', f16: 'tw_load8_f16' },
  },
  avx512: AVX512,
  amx: AVX512,
};

/** Compiler flags needed for a translation unit with kernels of these instruction sets. */
export function compilerFlags(isas: readonly CpuIsa[]): string[] {
  const flags = [
    '-std=gnu11',
    '-O3',
    '-ffp-contract=off',
    '-fno-math-errno',
    '-fno-trapping-math',
    '-fno-semantic-interposition',
    '-Wno-psabi',
  ];
  const has = (isa: CpuIsa): boolean => isas.includes(isa);
  const is512 = has('avx512') || has('amx');
  if (has('avx2') || is512) flags.push('-mavx2', '-mfma', '-mf16c', '-mbmi2');
  if (is512) flags.push('-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mprefer-vector-width=512');
  if (has('amx')) flags.push('-mamx-tile', '-mamx-bf16', '-mamx-int8');
  return flags;
}
