/**
 * The results that a contraction may give if products lie close to a rounding boundary of roundF20, where float32 and
 * float64 may round differently.
 */
import type { BufferDecl, GemmKernel, Kernel, Output } from '../../../ir/kernel.js';
import { ROW_SUM_BLOCK } from '../../../ir/kernel.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { mapScalar, type Scalar } from '../../../ir/scalar.js';

type Environment = Parameters<typeof interpretKernel>[1];

/** Least and greatest correct value of each element. */
export interface Range {
  readonly low: Float64Array;
  readonly high: Float64Array;
}

/**
 * `value` with its products shifted before they are rounded: by `own`, and by `other` those that rotateHalf or the
 * second matrix of a pair brings in.
 */
function moved(value: Scalar, own: number, other: number): Scalar {
  const by = (s: Scalar, first: number, second: number): Scalar =>
    mapScalar(s, (each) =>
      each.op === 'acc' ? { op: 'add', a: each, b: { op: 'const', value: each.index === 0 ? first : second } } : each,
    );
  const rotated = mapScalar(value, (s) =>
    s.op === 'rotateHalf' ? { op: 'rotateHalf', a: by(s.a, other - own, 0) } : s,
  );
  return by(rotated, own, other);
}

/**
 * Runs `outputs` of each segment, whatever their names, as stores of whole rows. Returns results by segment and output.
 */
function storesOf(
  kernel: GemmKernel,
  env: Environment,
  outputs: (segment: number) => readonly Scalar[],
): Float64Array[][] {
  const name = (segment: number, i: number): string => `beside_${segment}_${i}`;
  const declared: BufferDecl[] = [];
  const segments = kernel.segments.map((segment, s) => ({
    ...segment,
    outputs: outputs(s).map((value, i): Output => {
      declared.push({ name: name(s, i), dtype: 'f32', rows: kernel.rows, columns: segment.columns, space: 'arena' });
      return { kind: 'store', buffer: name(s, i), value };
    }),
  }));
  const got = interpretKernel(
    { ...kernel, segments },
    { ...env, decls: { ...env.decls, buffers: [...env.decls.buffers, ...declared] } },
  );
  return kernel.segments.map((_, s) => outputs(s).map((_value, i) => got.get(name(s, i))!));
}

/** A kernel that finishes rows as the two that it stands for: rows are finished from what is stored. */
export function partsOf(kernel: Kernel): readonly Kernel[] {
  if (kernel.anchor !== 'gemm' || kernel.finish === undefined) return [kernel];
  const { finish, ...gemm } = kernel;
  const { name, path, rows, ops } = kernel;
  return [gemm, { name, path, rows, ops, anchor: 'loop', columns: kernel.segments[0]!.columns, outputs: finish }];
}

/** The usual size of the finite values. */
export function usual(values: Float64Array): number {
  let [sum, count] = [0, 0];
  for (const x of values) if (Number.isFinite(x)) [sum, count] = [sum + Math.abs(x), count + 1];
  return sum / Math.max(1, count);
}

/** What is stored for `output`, element by element; for a tail, the whole number that it belongs to. */
const elementOf = ({ value }: Output): Scalar => (value.op === 'tailF24' ? { op: 'roundF24', a: value.a } : value);

const blockSums = (values: Float64Array, columns: number): Float64Array => {
  const blocks = Math.ceil(columns / ROW_SUM_BLOCK);
  const sums = new Float64Array((values.length / columns) * blocks);
  values.forEach((x, i) => {
    sums[Math.floor(i / columns) * blocks + Math.floor((i % columns) / ROW_SUM_BLOCK)]! += x;
  });
  return sums;
};

/** What each buffer may hold if products are off by `error` of their usual size before they are rounded. */
export function besideCuts(kernel: GemmKernel, env: Environment, error: number): Map<string, Range> {
  const products = storesOf(kernel, env, () => [{ op: 'acc', index: 0 }]).map(([product]) => usual(product!));
  const near = [0, -1, 1];
  const runs = near.flatMap((own) =>
    near.map((other) =>
      storesOf(kernel, env, (s) =>
        kernel.segments[s]!.outputs.map((output) =>
          moved(elementOf(output), own * error * products[s]!, other * error * products[s]!),
        ),
      ),
    ),
  );
  return new Map(
    kernel.segments.flatMap((segment, s) =>
      segment.outputs.map(({ kind, buffer }, i) => {
        const each = runs.map((run) => run[s]![i]!);
        const extreme = (pick: (...values: number[]) => number): Float64Array => {
          const values = each[0]!.map((_, e) => pick(...each.map((run) => run[e]!)));
          return kind === 'rowSum' ? blockSums(values, segment.columns) : values;
        };
        return [buffer, { low: extreme(Math.min), high: extreme(Math.max) }] as const;
      }),
    ),
  );
}
