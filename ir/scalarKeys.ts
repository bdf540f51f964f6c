/** Keys of scalar expressions: equal ones have equal keys, whatever objects they are made of. */
import { operands, printScalar, type Scalar } from './scalar.js';

/**
 * Numbers expressions. Equal expressions have one number, and each object is looked at once, so that a key costs what
 * the parts of an expression cost that were not seen before.
 */
export class ScalarKeys {
  private readonly byObject = new Map<Scalar, number>();
  private readonly byShape = new Map<string, number>();

  /** The number of `s`: a small one, the same for all expressions that print alike. */
  of(s: Scalar): number {
    const known = this.byObject.get(s);
    if (known !== undefined) return known;
    const shape = this.shapeOf(s);
    const key = this.byShape.get(shape) ?? this.byShape.size;
    this.byShape.set(shape, key);
    this.byObject.set(s, key);
    return key;
  }

  /** Visits every distinct sub-program of `outputs`, from the whole to its leaves, until `visit` returns true. */
  search(outputs: readonly { readonly value: Scalar }[], visit: (s: Scalar) => boolean): void {
    const seen = new Set<number>();
    const descend = (s: Scalar): void => {
      const key = this.of(s);
      if (seen.has(key)) return;
      seen.add(key);
      if (!visit(s)) operands(s).forEach(descend);
    };
    for (const { value } of outputs) descend(value);
  }

  /** Leaves as they print; other expressions by their operator and the numbers of their operands. */
  private shapeOf(s: Scalar): string {
    const parts = operands(s);
    if (parts.length === 0) return printScalar(s);
    const keys = parts.map((part) => this.of(part)).join(' ');
    return s.op === 'groupSum' ? `groupSum ${s.width} ${keys}` : `${s.op} ${keys}`;
  }
}
