/**
 * Checks one scalar program of a kernel: every leaf must have a meaning, and every buffer that it reads must have the
 * right shape.
 */
import { groupProblem, readsAcross } from './groupSums.js';
import type { BufferDecl } from './kernel.js';
import type { Scalar } from './scalar.js';
import { isBinary, isUnary, operands, printScalar, viaOf } from './scalar.js';
import type { Dim, ExtentName } from './types.js';

/** Looks up what a kernel reads, and checks that it may be read. */
export interface BufferReader {
  /** Declaration of a buffer that the kernel may read here. Throws if it may not. */
  read(name: string): BufferDecl;
  fail(what: string): never;
}

/** The iteration domain of a program. */
export interface ProgramDomain {
  readonly rows: ExtentName;
  readonly columns: Dim;
  /**
   * Number of accumulators that an epilogue sees: none in a loop, one for a contraction, two for an interleaved pair.
   */
  readonly accumulators: 0 | 1 | 2;
  /** Columns of a head, if programs may rotate. */
  readonly headDim: number | undefined;
}

/** Throws through `reader` at the first leaf of `program` that has no meaning in `domain`. */
export function verifyProgram(program: Scalar, domain: ProgramDomain, reader: BufferReader): void {
  for (const operand of operands(program)) verifyProgram(operand, domain, reader);
  const fail = (what: string): never => reader.fail(`${printScalar(program)}: ${what}`);
  if (isUnary(program) || isBinary(program)) return;
  switch (program.op) {
    case 'const':
      if (Number.isNaN(program.value)) fail('a constant must be a number, or -inf.');
      break;
    case 'acc':
      if (program.index >= domain.accumulators) fail(`the program sees ${domain.accumulators} accumulators.`);
      break;
    case 'rotateHalf':
      if (domain.headDim === undefined) fail("rotateHalf needs a segment with pairing 'rotate', or a loop with heads.");
      break;
    case 'groupSum': {
      const problem = groupProblem(program.width, domain.columns);
      if (problem !== undefined) fail(`${problem}.`);
      if (domain.accumulators !== 1) fail('groups are summed in the epilogue of one matrix.');
      if (domain.headDim !== undefined && domain.headDim !== program.width)
        fail(`the segment's pairing has heads of ${domain.headDim} columns.`);
      if (readsAcross(program.a)) fail('what a group adds up must not read other columns.');
      break;
    }
    case 'rowSum': {
      const buffer = reader.read(program.buffer);
      verifyRow(buffer, program.via, domain, reader, fail);
      if (typeof buffer.columns === 'string') fail('a row sum needs a fixed number of columns.');
      break;
    }
    case 'segmentSum': {
      const { width, parts } = program;
      const buffer = reader.read(program.buffer);
      verifyRow(buffer, program.via, domain, reader, fail);
      if (![width, parts].every((n) => Number.isInteger(n) && n >= 1))
        fail('the width and the parts of a segment are whole numbers, at least 1.');
      if (typeof domain.columns === 'string' || domain.columns % width !== 0)
        return fail(`${domain.columns} columns are not whole segments of ${width}.`);
      const columns = (domain.columns / width) * parts;
      if (buffer.dtype !== 'f32' || buffer.columns !== columns)
        fail(`'${buffer.name}' is ${buffer.dtype}${shape(buffer)}, but the segments need f32 and ${columns} columns.`);
      break;
    }
    case 'load': {
      const buffer = reader.read(program.buffer);
      const { access } = program;
      if (access.kind === 'column' || access.kind === 'columnPeriodic') {
        const length = access.kind === 'column' ? domain.columns : access.period;
        const along = buffer.columns === 1 ? buffer.rows : buffer.rows === 1 ? buffer.columns : undefined;
        if (along !== length) fail(`'${buffer.name}' is ${shape(buffer)}, not a vector of ${length}.`);
        break;
      }
      verifyRow(buffer, viaOf(access), domain, reader, fail);
      const columns = access.kind === 'element' ? domain.columns : access.kind === 'row' ? 1 : access.period;
      if (buffer.columns !== columns)
        fail(`'${buffer.name}' is ${shape(buffer)}, but the access needs ${columns} columns.`);
      break;
    }
    case 'rowIndex':
    case 'columnIndex':
    case 'select':
      break;
    default:
      program satisfies never;
  }
}

/** The row number is the domain's own, or is read through an i32 vector over the domain's rows. */
function verifyRow(
  buffer: BufferDecl,
  via: string | undefined,
  domain: ProgramDomain,
  reader: BufferReader,
  fail: (what: string) => never,
): void {
  if (via === undefined) {
    if (buffer.rows !== domain.rows)
      fail(`'${buffer.name}' has ${buffer.rows} rows, but the kernel has ${domain.rows}.`);
    return;
  }
  const index = reader.read(via);
  if (index.dtype !== 'i32' || index.rows !== domain.rows || index.columns !== 1) {
    fail(`'${via}' is ${index.dtype}${shape(index)}, but row numbers need i32[${domain.rows}, 1].`);
  }
}

/** `[T, 256]` */
export const shape = (buffer: Pick<BufferDecl, 'rows' | 'columns'>): string => `[${buffer.rows}, ${buffer.columns}]`;
