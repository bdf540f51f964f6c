/** What a contraction may give where a product lies beside a cut of roundF20: float32 and float64 fall to different sides. */
import type { GemmKernel } from '../../../ir/kernel.js';
import { interpretKernel } from '../../../ir/kernelInterpreter.js';
import { mapScalar, type Scalar } from '../../../ir/scalar.js';

/** `value` with its products moved before they are cut: by `own`, and those that rotateHalf or the second matrix of a pair brings by `other`. */
function moved(value: Scalar, own: number, other: number): Scalar {
  const by = (s: Scalar, first: number, second: number): Scalar =>
    mapScalar(s, (each) => (each.op === 'acc' ? { op: 'add', a: each, b: { op: 'const', value: each.index === 0 ? first : second } } : each));
  const rotated = mapScalar(value, (s) => (s.op === 'rotateHalf' ? { op: 'rotateHalf', a: by(s.a, other - own, 0) } : s));
  return by(rotated, own, other);
}

/** The kernel's results in float64 with products as they are, `delta` less and `delta` more: each of them is right. */
export function besideCuts(kernel: GemmKernel, env: Parameters<typeof interpretKernel>[1], delta: number): Map<string, Float64Array>[] {
  const near = [0, -delta, delta];
  return near.flatMap((own) => near.map((other) => {
    const segments = kernel.segments.map((segment) => ({ ...segment, outputs: segment.outputs.map((output) => ({ ...output, value: moved(output.value, own, other) })) }));
    return interpretKernel({ ...kernel, segments }, env);
  }));
}
