/** What kernels leave for others, in two ways of computing them, and how far the two are apart. */
import type { BufferDecl, KernelModule } from '../ir/kernel.js';
import { kernelWrites } from '../ir/kernelAccess.js';
import { joinF24 } from '../ir/scalar.js';

/** Sums of squares of one buffer over all prompts. */
export class Sums {
  #differences = 0;
  #values = 0;

  add(rounded: Float64Array, precise: Float64Array): void {
    for (let i = 0; i < precise.length; i++) {
      this.#differences += (rounded[i]! - precise[i]!) ** 2;
      this.#values += precise[i]! ** 2;
    }
  }

  get error(): number {
    return this.#differences === 0 ? 0 : Math.sqrt(this.#differences / this.#values);
  }
}

const isFloat = ({ dtype }: BufferDecl): boolean => dtype === 'f32' || dtype === 'bf16' || dtype === 'f16';
const TAIL = '_tail';
const HALF = /_(bf16|f16)$/;

/** What a kernel leaves for others, in its widest type. */
export interface Result {
  readonly kernel: string;
  /** The name without its element type. */
  readonly name: string;
  readonly buffer: BufferDecl;
  /** The lower bits of a stream of 24 bits. */
  readonly tail: string | undefined;
}

export interface Compared extends Result {
  readonly other: Result;
  readonly sums: Sums;
}

export function resultsOf({ buffers, kernels }: KernelModule): readonly Result[] {
  const decls = new Map(buffers.map((each) => [each.name, each]));
  return kernels.flatMap((kernel) => {
    const written = [...kernelWrites(kernel)].flatMap((name) => decls.get(name) ?? []).filter(isFloat);
    return written.flatMap((buffer): readonly Result[] => {
      const name = buffer.name.replace(HALF, '');
      // Where a value is stored twice, the wider copy is compared. Partial sums are not results.
      const isNarrow = name !== buffer.name && decls.has(name);
      if (isNarrow || name.endsWith('_parts') || buffer.space === 'state') return [];
      const tail = decls.has(`${name}${TAIL}`) ? `${name}${TAIL}` : undefined;
      return [{ kernel: kernel.path, name, buffer, tail }];
    });
  });
}

export type IsSame = (a: Result, b: Result) => boolean;

/** Results of a kernel that both have. */
export function comparedResults(a: KernelModule, b: KernelModule, isSame: IsSame): readonly Compared[] {
  const others = resultsOf(b);
  return resultsOf(a).flatMap((result) => {
    const isLike = ({ kernel, buffer }: Result): boolean =>
      kernel === result.kernel && buffer.columns === result.buffer.columns && buffer.rows === result.buffer.rows;
    const other = others.find((each) => isLike(each) && isSame(result, each));
    return other === undefined ? [] : [{ ...result, other, sums: new Sums() }];
  });
}

/** The values of a result after a call. */
export function valuesOf({ buffer, tail }: Result, left: ReadonlyMap<string, Float64Array>): Float64Array {
  const data = left.get(buffer.name)!;
  if (tail === undefined) return data;
  const low = left.get(tail)!;
  return data.map((upper, i) => joinF24(upper, low[i]!));
}
