/**
 * Verifier of kernel IR. It runs on every module before code generation. Names from here appear in generated source, so
 * the identifier grammar is checked too.
 */
import type { ExtentDecl } from './extents.js';
import { groupSumsOf } from './groupSums.js';
import {
  type BufferDecl,
  type GemmKernel,
  isRowMax,
  type Kernel,
  type KernelModule,
  type LoopDomain,
  loopDomains,
  type LoopKernel,
  type Output,
  ROW_SUM_BLOCK,
  type Segment,
  type WeightDecl,
} from './kernel.js';
import { sourceRows } from './packing.js';
import { operands, readOf, type Scalar } from './scalar.js';
import { FORMATS } from './storage.js';
import type { BufferDType, Dim, ExtentName } from './types.js';
import {
  IDENTIFIER,
  isExtent,
  type KernelCheck,
  pairingProblem,
  verifyAttention,
  verifyContraction,
  verifyLogProb,
  verifyLogProbReduce,
  verifyRoute,
  verifyRouting,
  verifySample,
  verifySortByExpert,
  verifyWeight,
} from './verifyAnchors.js';
import { verifyLinks, verifyScan } from './verifyRecurrent.js';
import { verifyAdapterRows, verifySegmentAdapter, verifyShrink } from './verifyAdapters.js';
import { StateVersions, verifyBuffers, verifyConstants, verifyExtents, verifyStates } from './verifyBuffers.js';
import { type ProgramDomain, shape, verifyProgram } from './verifyProgram.js';

/** Paths and op names appear in comments of generated source: they must be printable and must not end a comment. */
const REMARK = /^(?!.*\*\/)[\x20-\x5b\x5d-\x7e]{0,256}$/;
/** What is in memory before the first kernel. */
const READY: ReadonlySet<BufferDecl['space']> = new Set(['input', 'weight', 'state']);

/**
 * Throws at the first fault in `module`, naming the kernel (or declaration) and the rule that it breaks. A module that
 * passes can be interpreted and emitted without further checks of names, shapes and dtypes. `after` is the pass that
 * made it, for the message.
 */
export function verifyKernels(module: KernelModule, after?: string): void {
  try {
    verifyModule(module);
  } catch (error) {
    if (after === undefined || !(error instanceof Error)) throw error;
    throw new Error(`After ${after}: ${error.message}`, { cause: error });
  }
}

function verifyModule(module: KernelModule): void {
  const extents = verifyExtents(module.interface.extents);
  const buffers = verifyBuffers(module, extents);
  const weights = new Map<string, WeightDecl>();
  verifyStates(module);
  for (const weight of module.weights) verifyWeight(weight, weights, buffers);
  verifyConstants(module);
  const ready = new Set([...buffers.values()].filter(({ space }) => READY.has(space)).map(({ name }) => name));
  const names = new Set<string>();
  const versions = new StateVersions(module);
  for (const [i, kernel] of module.kernels.entries()) {
    const check = new KernelVerifier(kernel, buffers, weights, ready, module.interface.extents);
    for (const dim of [
      kernel.rows,
      ...(kernel.anchor === 'loop' ? loopDomains(kernel).map(({ columns }) => columns) : []),
    ])
      if (typeof dim === 'string' && !extents.has(dim)) check.fail(`the function declares no extent ${dim}.`);
    if (!IDENTIFIER.test(kernel.name)) check.fail('the name does not match [a-z][a-z0-9_]*.');
    if (names.has(kernel.name)) check.fail('another kernel has the same name.');
    names.add(kernel.name);
    for (const remark of [kernel.path, ...kernel.ops]) {
      if (!REMARK.test(remark)) check.fail(`${JSON.stringify(remark)} may not stand in a comment of generated source.`);
    }
    check.run();
    if (kernel.anchor === 'gemm') verifyRouting(kernel, module.kernels.slice(i + 1, i + 3), (what) => check.fail(what));
    versions.advance(kernel, (what) => check.fail(what));
    for (const name of check.written) ready.add(name);
    if (kernel.anchor === 'sample') ready.delete(kernel.logits);
  }
  for (const buffer of module.buffers) {
    if (buffer.space === 'output' && !ready.has(buffer.name))
      throw new Error(`Buffer '${buffer.name}' is an output, but no kernel writes it.`);
  }
  versions.finish();
}

// Checks of one kernel within its module: what it reads and writes, and in what shapes.

/** Names of buffers that a program reads at rows of an index, and those of the indices. */
const indexedReads = (s: Scalar): readonly string[] => {
  const read = readOf(s);
  return [...(read?.via === undefined ? [] : [read.buffer, read.via]), ...operands(s).flatMap(indexedReads)];
};

/**
 * Checks one kernel. `ready` names the buffers that hold values before it runs; `run` throws at the first fault, and
 * afterwards `written` names the buffers that the kernel has written.
 */
export class KernelVerifier implements KernelCheck {
  readonly written = new Set<string>();
  /** What the kernel has written and may read, at the row itself. */
  private complete: ReadonlySet<string> = new Set();
  private readonly kernel: Kernel;
  private readonly buffers: ReadonlyMap<string, BufferDecl>;
  private readonly weights: ReadonlyMap<string, WeightDecl>;
  private readonly ready: ReadonlySet<string>;
  readonly extents: readonly ExtentDecl[];

  constructor(
    kernel: Kernel,
    buffers: ReadonlyMap<string, BufferDecl>,
    weights: ReadonlyMap<string, WeightDecl>,
    ready: ReadonlySet<string>,
    extents: readonly ExtentDecl[],
  ) {
    this.extents = extents;
    this.kernel = kernel;
    this.buffers = buffers;
    this.weights = weights;
    this.ready = ready;
  }

  fail(what: string): never {
    throw new Error(`Kernel ${JSON.stringify(this.kernel.name)} (${this.kernel.path}): ${what}`);
  }

  run(): void {
    const { kernel } = this;
    switch (kernel.anchor) {
      case 'gemm':
        return this.gemm(kernel);
      case 'attention':
        return verifyAttention(kernel, this);
      case 'logprob':
        return verifyLogProb(kernel, this);
      case 'logprobReduce':
        return verifyLogProbReduce(kernel, this);
      case 'sample':
        return verifySample(kernel, this);
      case 'route':
        return verifyRoute(kernel, this);
      case 'sortByExpert':
        return verifySortByExpert(kernel, this);
      case 'shrink':
        return verifyShrink(kernel, this);
      case 'links':
        return verifyLinks(kernel, this);
      case 'scan':
        return verifyScan(kernel, this);
      case 'loop':
        for (const domain of loopDomains(kernel)) this.loop(kernel.rows, domain);
        if (kernel.finish !== undefined) this.finishLoop(kernel, kernel.finish);
        return;
      default:
        return kernel satisfies never;
    }
  }

  weight(name: string): WeightDecl | undefined {
    return this.weights.get(name);
  }

  read(name: string): BufferDecl {
    const weight = this.weights.get(name);
    if (weight?.layout === 'rows')
      return {
        name,
        dtype: FORMATS[weight.format].element,
        rows: sourceRows(weight) * (weight.slots?.count ?? 1),
        columns: weight.k,
        space: 'weight',
      };
    const buffer = this.buffers.get(name);
    if (buffer === undefined)
      return this.fail(
        `it reads '${name}', which is not a buffer${weight === undefined ? '' : ' but a packed weight'}.`,
      );
    if (this.complete.has(name)) return buffer;
    if (this.written.has(name)) this.fail(`it reads '${name}', which it writes itself.`);
    if (!this.ready.has(name)) this.fail(`it reads '${name}' before any kernel has written it.`);
    return buffer;
  }

  write(name: string): BufferDecl {
    const buffer = this.buffers.get(name);
    if (buffer === undefined) return this.fail(`it writes '${name}', which is not a buffer.`);
    if (buffer.space === 'state') this.fail(`it writes state '${name}' otherwise than through an index.`);
    if (buffer.space !== 'arena' && buffer.space !== 'output')
      this.fail(`it writes '${name}', which is an ${buffer.space}.`);
    if (this.ready.has(name) || this.written.has(name)) this.fail(`it writes '${name}', which is already written.`);
    this.written.add(name);
    return buffer;
  }

  is(
    buffer: BufferDecl,
    dtypes: readonly BufferDType[],
    rows: BufferDecl['rows'],
    columns: BufferDecl['columns'],
    role: string,
  ): void {
    if (!dtypes.includes(buffer.dtype) || buffer.rows !== rows || buffer.columns !== columns) {
      this.fail(
        `'${buffer.name}' is ${buffer.dtype}${shape(buffer)}; as ${role} ` +
          `it must be ${dtypes.join(' or ')}${shape({ rows, columns })}.`,
      );
    }
  }

  private outputs(outputs: readonly Output[], domain: ProgramDomain): void {
    if (outputs.length === 0) this.fail('it computes columns but stores none of them.');
    for (const output of outputs) verifyProgram(output.value, domain, this);
    for (const output of outputs) {
      if (output.kind === 'store' && output.via !== undefined) {
        this.storeVia(output.buffer, output.via, domain);
        continue;
      }
      const buffer = this.write(output.buffer);
      if (output.kind === 'store') this.is(buffer, [buffer.dtype], domain.rows, domain.columns, 'a store');
      else if (typeof domain.columns === 'string') this.fail('a row sum needs a fixed number of columns.');
      else if (isRowMax(output, buffer.columns)) this.is(buffer, ['f32'], domain.rows, 1, 'the largest of a row');
      else
        this.is(
          buffer,
          ['f32'],
          domain.rows,
          Math.ceil(domain.columns / ROW_SUM_BLOCK),
          `row sums of ${domain.columns} columns`,
        );
    }
  }

  /** Rows of a state through an index. Other buffers are written whole. */
  private storeVia(name: string, via: string, { rows, columns }: ProgramDomain): void {
    const state = this.buffers.get(name);
    if (state?.space !== 'state') return this.fail(`it writes '${name}' through an index, but '${name}' is no state.`);
    if (this.written.has(name)) this.fail(`it writes '${name}' twice.`);
    this.is(this.read(via), ['i32'], rows, 1, 'rows to write');
    if (state.columns !== columns) this.fail(`'${name}' is ${shape(state)}; a store needs ${columns} columns.`);
    this.written.add(name);
  }

  private gemm(kernel: GemmKernel): void {
    if (!isExtent(kernel.k)) this.fail(`k ${kernel.k} is not an extent.`);
    const a = this.read(kernel.a);
    const { heads = 1 } = kernel;
    this.is(a, ['f32', 'bf16', 'f16', 'e4m3', 'i8'], kernel.rows, heads * kernel.k, 'the left operand');
    if (kernel.heads !== undefined) this.heads(kernel, kernel.heads);
    if (kernel.segments.length === 0) this.fail('it has no segments.');
    const { experts } = kernel;
    if (experts !== undefined)
      this.is(this.read(experts.starts), ['i32'], experts.count + 1, 1, 'where the rows of experts begin');
    if (kernel.adapter !== undefined) verifyAdapterRows(kernel, kernel.adapter, a, this);
    const all: Output[] = [];
    for (const segment of kernel.segments) {
      this.segment(kernel, segment, a);
      all.push(...segment.outputs);
    }
    for (const segment of kernel.segments) {
      if (new Set(groupSumsOf(segment.outputs).map(({ width }) => width)).size > 1)
        this.fail(`the epilogue of '${segment.weight}' sums groups of more than one width.`);
      this.outputs(segment.outputs, {
        rows: kernel.rows,
        columns: segment.columns,
        headDim: segment.pairing.kind === 'rotate' ? segment.pairing.headDim : undefined,
        accumulators: segment.pairing.kind === 'interleave' ? 2 : 1,
      });
    }
    if ([...all, ...(kernel.finish ?? [])].some((output) => output.kind === 'rowSum' && output.by === 'max'))
      this.fail('only loops find the largest of rows.');
    if (kernel.finish === undefined) return;
    const [{ columns }, ...more] = kernel.segments as readonly [Segment, ...Segment[]];
    if (more.length > 0 || kernel.experts !== undefined)
      this.fail('only kernels of one segment, without experts, finish rows.');
    this.finish(kernel.rows, columns, kernel.finish);
  }

  private heads(kernel: GemmKernel, heads: number): void {
    const [{ columns, pairing }, ...more] = kernel.segments as readonly [Segment, ...Segment[]];
    if (!isExtent(heads) || more.length > 0 || columns % heads !== 0)
      this.fail(`its segments are not one, of ${heads} heads.`);
    const { experts, adapter, rounding } = kernel;
    if (pairing.kind !== 'none' || experts !== undefined || adapter !== undefined || rounding !== undefined)
      this.fail('heads that are multiplied each for itself have no pairing, experts, adapter or rounding.');
    if (kernel.segments.some(({ outputs }) => outputs.some(({ kind }) => kind === 'rowSum')))
      this.fail('heads that are multiplied each for itself have no sums of rows.');
    if (kernel.finish !== undefined) this.fail('heads that are multiplied each for itself finish no rows.');
  }

  private finishLoop({ rows, columns, headDim, beside }: LoopKernel, outputs: readonly Output[]): void {
    if (typeof columns === 'string' || headDim !== undefined || beside !== undefined)
      this.fail('only loops of one domain without heads, of a fixed number of columns, finish rows.');
    this.finish(rows, columns, outputs);
  }

  /** Other rows of what the kernel stores may not be complete yet. */
  private finish(rows: ExtentName, columns: Dim, outputs: readonly Output[]): void {
    const own = new Set(this.written);
    const far = outputs.flatMap((output) => [
      ...indexedReads(output.value),
      ...(output.kind === 'store' && output.via !== undefined ? [output.via] : []),
    ]);
    const stray = far.find((name) => own.has(name));
    if (stray !== undefined) this.fail(`it finishes rows by '${stray}' of other rows, which it writes itself.`);
    this.complete = own;
    this.outputs(outputs, { rows, columns, accumulators: 0, headDim: undefined });
  }

  private loop(rows: ExtentName, { columns, headDim, outputs }: LoopDomain): void {
    if (typeof columns === 'number' && !isExtent(columns)) this.fail(`columns ${columns} is not an extent.`);
    if (headDim !== undefined && (!isExtent(headDim) || headDim % 2 !== 0))
      this.fail(`head dimension ${headDim} is not an even whole number.`);
    if (headDim !== undefined && (typeof columns === 'string' || columns % headDim !== 0))
      this.fail(`${columns} columns are not whole heads of ${headDim}.`);
    this.outputs(outputs, { rows, columns, accumulators: 0, headDim });
  }

  private segment(kernel: GemmKernel, segment: Segment, a: BufferDecl): void {
    if (!isExtent(segment.columns)) this.fail(`${segment.columns} columns of '${segment.weight}' is not an extent.`);
    const wrong = pairingProblem(segment.pairing, segment.columns);
    if (wrong !== undefined) this.fail(`segment '${segment.weight}': ${wrong}`);
    const matrices = segment.pairing.kind === 'interleave' ? 2 : 1;
    const each = (segment.columns * matrices) / (kernel.heads ?? 1);
    const read = { k: kernel.k, each, pairing: segment.pairing, a, experts: kernel.heads ?? kernel.experts?.count };
    verifyContraction(segment.weight, read, this);
    verifySegmentAdapter(kernel, segment, this);
  }
}
