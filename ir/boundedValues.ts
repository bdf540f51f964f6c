/**
 * Bounds of whole numbers that kernels compute. A number that was made of inputs with roles, literals, minima and
 * maxima may choose rows as an input may, where its bounds prove that it stays among them.
 */
import type { KernelModule } from './kernel.js';
import { outputsOf } from './kernelAccess.js';
import type { Role } from './roles.js';
import type { Scalar } from './scalar.js';

/** From `low` to `high`, both included. */
export interface Bounds {
  readonly low: number;
  readonly high: number;
}

const ANY: Bounds = { low: -Infinity, high: Infinity };

const roleBounds = (role: Role | undefined): Bounds =>
  role?.kind === 'token' ? { low: 0, high: role.vocab - 1 } : ANY;

/** Bounds of a scalar that is not NaN. A maximum or minimum of NaN and a number is the number. */
function boundsOf(s: Scalar, roles: ReadonlyMap<string, Role>): Bounds {
  switch (s.op) {
    case 'const':
      return { low: s.value, high: s.value };
    case 'load':
      return roleBounds(roles.get(s.buffer));
    case 'toF32':
      return boundsOf(s.a, roles);
    case 'select': {
      const [a, b] = [boundsOf(s.a, roles), boundsOf(s.b, roles)];
      return { low: Math.min(a.low, b.low), high: Math.max(a.high, b.high) };
    }
    case 'max':
    case 'min': {
      const [a, b] = [boundsOf(s.a, roles), boundsOf(s.b, roles)];
      const of = s.op === 'max' ? Math.max : Math.min;
      return { low: of(a.low, b.low), high: of(a.high, b.high) };
    }
    default:
      return ANY;
  }
}

/**
 * Bounds of the i32 values that kernels store in `buffer`; undefined where anything else writes it, or nothing does. A
 * value that is no whole number is rounded to one that lies between the same bounds.
 */
export function storedBounds(
  { kernels, buffers }: Pick<KernelModule, 'kernels' | 'buffers'>,
  buffer: string,
  roles: ReadonlyMap<string, Role>,
): Bounds | undefined {
  const declared = buffers.find(({ name }) => name === buffer);
  if (declared?.dtype !== 'i32' || declared.space !== 'arena') return undefined;
  const writers = kernels.flatMap((kernel) =>
    outputsOf(kernel).flatMap((output) => (output.buffer === buffer ? [{ kernel, output }] : [])),
  );
  const [only] = writers;
  if (only === undefined || writers.length > 1) return undefined;
  const { kernel, output } = only;
  // Every row that is read has been written: the kernel has the buffer's rows, and goes through all of them.
  const isWhole = kernel.anchor === 'loop' && kernel.rows === declared.rows && output.kind === 'store';
  return isWhole && output.via === undefined ? boundsOf(output.value, roles) : undefined;
}
