/** What the verifier of a module knows while it checks a kernel, and how it complains. */
import type { ExtentDecl } from './extents.js';
import type { BufferDecl, WeightDecl } from './kernel.js';
import type { BufferDType, Dim } from './types.js';
import type { Reader } from './verifyProgram.js';

export interface KernelCheck extends Reader {
  readonly extents: readonly ExtentDecl[];
  /** Declaration of a buffer that the kernel may write, which it does now. Throws if it may not. */
  write(name: string): BufferDecl;
  weight(name: string): WeightDecl | undefined;
  /** Throws if `buffer` has another type or shape than as `role` it must have. */
  is(buffer: BufferDecl, dtypes: readonly BufferDType[], rows: Dim, columns: Dim, role: string): void;
}
