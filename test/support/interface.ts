/** Calling conventions of functions that tests write by hand as buffers and kernels. */
import type { FunctionInterface } from '../../ir/function.js';
import type { BufferDecl } from '../../ir/kernel.js';
import type { Role } from '../../ir/function.js';
import { type Dim, type DType, isFloat } from '../../ir/types.js';
import type { PortBinding, ProgramExtent } from '../../runtime/native.js';

const shapeOf = ({ rows, columns }: BufferDecl): readonly Dim[] => (columns === 1 ? [rows] : [rows, columns]);

/** Inputs of scoring by the names that hand-written buffers have. */
function scoringRole(name: string, vocab: number): Role {
  switch (name.replaceAll('_', '').toLowerCase()) {
    case 'tokens':
    case 'target':
      return { kind: 'token', vocab };
    case 'position':
      return { kind: 'position' };
    case 'subtreeend':
      return { kind: 'subtreeEnd' };
    case 'row':
      return { kind: 'row', of: 'T' };
    default:
      return { kind: 'values' };
  }
}

/**
 * The convention of a function over T and R with these buffers, whose inputs have the names that scoring gives them.
 */
export function interfaceOf(
  buffers: readonly BufferDecl[],
  { vocab = 1, roles = {} }: { readonly vocab?: number; readonly roles?: Readonly<Record<string, Role>> } = {},
): FunctionInterface {
  const declared = (space: BufferDecl['space']) =>
    buffers
      .filter((buffer) => buffer.space === space)
      .map((buffer) => ({
        name: buffer.name,
        buffer: buffer.name,
        dtype: buffer.dtype as DType,
        shape: shapeOf(buffer),
        isIndex: !isFloat(buffer.dtype),
      }));
  return {
    name: 'score',
    extents: [
      { name: 'T', counts: 'tokens' },
      { name: 'R', counts: 'rows' },
    ],
    inputs: declared('input').map(({ isIndex, ...input }) => ({
      ...input,
      role: roles[input.name] ?? (isIndex ? scoringRole(input.name, vocab) : { kind: 'values' }),
    })),
    outputs: declared('output').map(({ isIndex: _, ...output }) => output),
    takes: [],
    gives: [],
  };
}

// Parts of bindings of native programs, for tests.

/** The extents T and R, with these sizes. */
export const extentsTR = (T: number, R: number): readonly ProgramExtent[] => [
  { name: 'T', most: T },
  { name: 'R', most: R },
];

/** A vector of an extent that a call copies in or out. */
export const vector = (slot: number, rows: string | number, dtype: PortBinding['dtype'] = 'i32'): PortBinding => ({
  slot,
  dtype,
  rows,
  columns: 1,
  stride: 1,
});
