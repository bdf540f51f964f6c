/** Rows of numbers as codes of 8 bits with scales, in primitive ops. */
import type { Rewriter, Value } from '../ir/graph/graph.js';
import { LARGEST } from '../ir/round.js';
import type { CodeFormat } from '../ir/storage.js';

/** Rows in 8 bits, and what each is to be multiplied by. */
export interface Scaled {
  readonly codes: Value;
  readonly scale: Value;
}

/** Keeps the scale of a row of zeros finite. Squares of what is larger than 1e-13 are far above it. */
export const TINY = 1e-30;

/**
 * The largest power of two c with c·√width ≤ 448. No number of a row exceeds r·√width, where r is the root mean square,
 * so nothing saturates in E4M3 if the scale is r / c.
 */
export const factorByMean = (width: number): number => 2 ** Math.floor(Math.log2(LARGEST.e4m3 / Math.sqrt(width)));

/** Adds nodes for rows of `x`, whose names begin with its name. */
export class RowScaler {
  readonly x: Value;
  private readonly rewriter: Rewriter;

  constructor(rewriter: Rewriter, x: Value) {
    this.rewriter = rewriter;
    this.x = x;
  }

  unary(op: 'mean' | 'neg' | 'reduce_max' | 'rsqrt' | 'sqrt', x: Value, what: string): Value {
    return this.rewriter.add(op, { x }, {}, `${this.x.name}_${what}`);
  }

  binary(op: 'add' | 'div' | 'max' | 'mul', a: Value, b: Value, what: string): Value {
    return this.rewriter.add(op, { a, b }, {}, `${this.x.name}_${what}`);
  }

  literal(value: number): Value {
    return this.rewriter.add('const', {}, { value }, `${this.x.name}_const`);
  }

  /** x · inverse in 8 bits. */
  codes(inverse: Value, format: CodeFormat): Value {
    const scaled = this.binary('mul', this.x, inverse, 'scaled');
    return this.rewriter.add('cast', { x: scaled }, { dtype: format }, `${this.x.name}_${format}`);
  }

  /** x / (r / by) in 8 bits, and r / by, where r² is `square`. */
  bySquare(square: Value, by: number, format: CodeFormat): Scaled {
    const root = this.unary('rsqrt', square, 'inverse_root');
    const codes = this.codes(this.binary('mul', root, this.literal(by), 'inverse'), format);
    const scale = this.binary('mul', this.unary('sqrt', square, 'root'), this.literal(1 / by), 'scale');
    return { codes, scale };
  }
}
