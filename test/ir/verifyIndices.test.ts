import { describe, expect, it } from 'vitest';
import { type Role, roleRange } from '../../ir/function.js';
import type { Kernel, KernelModule } from '../../ir/kernel.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from '../passes/llamaGraph.js';
import { F32 } from '../passes/lowered.js';

const module = lower(optimize(llama(), F32), F32);

const withKernels = (change: (kernel: Kernel) => Kernel): KernelModule => ({
  ...module,
  kernels: module.kernels.map(change),
});
const withRole = (name: string, role: Role): KernelModule => ({
  ...module,
  interface: {
    ...module.interface,
    inputs: module.interface.inputs.map((input) => (input.name === name ? { ...input, role } : input)),
  },
});
const vocab = module.interface.inputs.flatMap(({ role }) => (role.kind === 'token' ? [role.vocab] : []))[0]!;

describe('verifyIndices', () => {
  it('proves the indices of a model', () => {
    expect(() => verifyIndices(module)).not.toThrow();
  });

  it('refuses token ids as the rows of an attention, although shape and type fit', () => {
    const crafted = withKernels((kernel) =>
      kernel.anchor === 'attention' && kernel.queryRow !== undefined ? { ...kernel, queryRow: 'target' } : kernel,
    );
    expect(() => verifyKernels(crafted)).not.toThrow();
    expect(() => verifyIndices(crafted)).toThrow(
      /'target' is token\(\d+\); it may not choose among T rows of the queries/,
    );
  });

  it('refuses row numbers as targets, and positions as token ids', () => {
    const targets = withKernels((kernel) =>
      kernel.anchor === 'logprob' || kernel.anchor === 'logprobReduce' ? { ...kernel, target: 'row' } : kernel,
    );
    expect(() => verifyIndices(targets)).toThrow(
      /'row' is row\(T\); it may not choose among \d+ rows of the vocabulary/,
    );
    expect(() => verifyIndices(withRole('tokens', { kind: 'position' }))).toThrow(/'tokens' is position; it may not/);
  });

  it('refuses a role that promises more rows than exist', () => {
    expect(() => verifyIndices(withRole('tokens', { kind: 'token', vocab: vocab + 1 }))).toThrow(
      /may not choose among/,
    );
    expect(() => verifyIndices(withRole('tokens', { kind: 'token', vocab: vocab - 1 }))).not.toThrow();
    expect(() => verifyIndices(withRole('row', { kind: 'row', of: 'R' }))).toThrow(/may not choose among T rows/);
    expect(() => verifyIndices(withRole('subtreeEnd', { kind: 'values' }))).toThrow(/must be subtreeEnd/);
  });

  it('refuses an interface that names other inputs than the buffers', () => {
    const [first, ...rest] = module.interface.inputs;
    const inputs = (list: KernelModule['interface']['inputs']): KernelModule => ({
      ...module,
      interface: { ...module.interface, inputs: list },
    });
    expect(() => verifyIndices(inputs(rest))).toThrow(`Buffer ${first!.buffer} is an input that the interface`);
    expect(() => verifyIndices(inputs([...rest, { ...first!, shape: ['R'] }]))).toThrow(/no such buffer/);
    expect(() => verifyIndices(inputs([first!, ...module.interface.inputs]))).toThrow(/Two inputs are copied to/);
  });
});

describe('roleRange', () => {
  const limits = { extents: { T: 4, Slots: 2 }, states: { kv: 8 }, maxLength: 3 };
  /** The first entry that its role does not allow; −1 for none. */
  const firstOutside = (role: Role, values: readonly number[]): number => {
    const range = roleRange(role, limits, values.length);
    return range === undefined ? -1 : values.findIndex((v, i) => v < range.low(i) || v >= range.below(i));
  };
  const check = (role: Role, ...values: readonly number[]) => {
    expect(firstOutside(role, values), `${role.kind} ${values.join(' ')}`).toBe(-1);
  };
  const refuse = (role: Role, at: number, ...values: readonly number[]) => {
    expect(firstOutside(role, values), `${role.kind} ${values.join(' ')}`).toBe(at);
  };

  it('bounds each role by what it indexes', () => {
    check({ kind: 'token', vocab: 9 }, 0, 8);
    refuse({ kind: 'token', vocab: 9 }, 1, 0, 9);
    refuse({ kind: 'token', vocab: 9 }, 0, -1);
    check({ kind: 'row', of: 'T' }, 3, 0);
    refuse({ kind: 'row', of: 'T' }, 0, 4);
    check({ kind: 'rowOrNone', of: 'T' }, -1, 3);
    refuse({ kind: 'rowOrNone', of: 'T' }, 0, -2);
    refuse({ kind: 'rowOrNone', of: 'T' }, 1, -1, 4);
    check({ kind: 'position' }, 0, 1, 2, 2);
    refuse({ kind: 'position' }, 1, 0, 2);
    refuse({ kind: 'position' }, 3, 0, 1, 2, 3);
    check({ kind: 'subtreeEnd' }, 2, 2);
    refuse({ kind: 'subtreeEnd' }, 1, 2, 1);
    refuse({ kind: 'subtreeEnd' }, 0, 3, 2);
    check({ kind: 'slot', state: 'kv' }, -1, 7);
    refuse({ kind: 'slot', state: 'kv' }, 0, -2);
    refuse({ kind: 'slot', state: 'kv' }, 0, 8);
    refuse({ kind: 'entry', state: 'kv' }, 0, -1);
    check({ kind: 'values' }, -1e9, NaN);
  });
});
