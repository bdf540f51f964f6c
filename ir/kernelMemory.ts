/** Named memory of the kernel interpreter: bounds-checked buffers and logical weights. */
import type { BufferDecl, KernelModule, WeightDecl } from './kernel.js';
import type { Access } from './scalar.js';
import { extentIn, type Extents } from './extents.js';
import type { Dim } from './types.js';
import type { RawTensor } from './logicalWeight.js';
import { sourceRows } from './packing.js';
import { logicalWeight } from './logicalWeight.js';
import { roundToDType } from './round.js';

/** What a module runs on. */
export interface ModuleEnv {
  readonly sizes: Extents;
  /** Dense input buffers by name. `interpretKernel` takes every buffer that the kernel reads. */
  readonly buffers: ReadonlyMap<string, Float64Array>;
  /**
   * Weights by WeightDecl name, as logical [n, k] matrices: sources stacked by rows, columnScale already applied. Slots
   * follow one another, and are zero where nothing is given.
   */
  readonly weights?: ReadonlyMap<string, Float64Array>;
  /** Checkpoint tensors by name. A weight that is absent from `weights` is built from its sources and columnScale. */
  readonly tensors?: ReadonlyMap<string, RawTensor>;
  /**
   * Rounds what is stored to the buffer's dtype, and built weights to their format. By default everything stays exact
   * float64.
   */
  readonly round?: boolean;
}

export interface KernelEnv extends ModuleEnv {
  readonly decls: Pick<KernelModule, 'buffers' | 'weights'>;
}

/** A buffer or weight whose extents are resolved. */
export interface BufferView {
  readonly name: string;
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;
}

/**
 * The memory that one run of kernels reads and writes. Between `begin` and `end`, a kernel's reads do not see its own
 * writes.
 */
export class KernelMemory {
  readonly env: KernelEnv;
  private readonly decls: ReadonlyMap<string, BufferDecl>;
  private readonly weightDecls: ReadonlyMap<string, WeightDecl>;
  private readonly built = new Map<string, Float64Array>();
  private views = new Map<string, BufferView>();
  private written = new Map<string, Float64Array>();

  constructor(env: KernelEnv) {
    this.env = env;
    this.decls = new Map(env.decls.buffers.map((decl) => [decl.name, decl]));
    this.weightDecls = new Map(env.decls.weights.map((decl) => [decl.name, decl]));
  }

  begin(): void {
    this.written = new Map();
    this.views = new Map();
  }

  /** Lets the rest of the kernel read what it has written so far. */
  complete(): void {
    for (const [name, data] of this.written) {
      const decl = this.decls.get(name)!;
      this.views.set(name, { name, rows: this.extent(decl.rows), columns: this.extent(decl.columns), data });
    }
  }

  end(): Map<string, Float64Array> {
    return this.written;
  }

  load(view: BufferView, access: Access, row: number, column: number): number {
    if (access.kind === 'column') return element(view, column, 0, view.rows === 1);
    if (access.kind === 'columnPeriodic') return element(view, column % access.period, 0, view.rows === 1);
    const from = access.via === undefined ? row : this.index(access.via, row, view.rows);
    if (access.kind === 'row') return element(view, from, 0, false);
    return element(view, from, access.kind === 'periodic' ? column % access.period : column, false);
  }

  /** Element `row` of an i32 vector. Throws unless it is an index below `limit`. */
  index(buffer: string, row: number, limit: number): number {
    const value = this.read(buffer).data[row]!;
    if (!(Number.isInteger(value) && value >= 0 && value < limit)) {
      throw new Error(`${buffer}[${row}] is ${value}, which is not an index below ${limit}.`);
    }
    return value;
  }

  /** Element `row` of an i32 vector of rows to write, checked to be below `limit`; undefined for −1, no row. */
  slot(buffer: string, row: number, limit: number): number | undefined {
    return this.read(buffer).data[row] === -1 ? undefined : this.index(buffer, row, limit);
  }

  extent(dim: Dim): number {
    return extentIn(dim, this.env.sizes);
  }

  /** A buffer to read; a weight in layout `rows` reads like a buffer. */
  read(name: string): BufferView {
    const known = this.views.get(name);
    if (known !== undefined) return known;
    const decl = this.decls.get(name);
    const weight = this.weightDecls.get(name);
    const data = this.env.buffers.get(name) ?? (weight === undefined ? this.env.weights?.get(name) : undefined);
    if (decl === undefined || (data === undefined && weight !== undefined)) {
      if (weight === undefined) throw new Error(`reads '${name}', which is not declared.`);
      return this.weight(name, weight.k);
    }
    if (data === undefined) throw new Error(`reads '${name}', which has neither been written nor passed in.`);
    const view = { name, rows: this.extent(decl.rows), columns: this.extent(decl.columns), data };
    if (data.length !== view.rows * view.columns) {
      throw new Error(`'${name}' is [${view.rows}, ${view.columns}] but ${data.length} elements were given.`);
    }
    this.views.set(name, view);
    return view;
  }

  /** A new buffer for the kernel to fill: zero, or a copy of the state. Reads see it only once the kernel has ended. */
  write(name: string): BufferView {
    const decl = this.decls.get(name);
    if (decl === undefined) throw new Error(`writes '${name}', which is not declared.`);
    if (this.written.has(name)) throw new Error(`writes '${name}' twice.`);
    const rows = this.extent(decl.rows);
    const columns = this.extent(decl.columns);
    const data = decl.space === 'state' ? this.read(name).data.slice() : new Float64Array(rows * columns);
    this.written.set(name, data);
    return { name, rows, columns, data };
  }

  finish(name: string): void {
    if (this.env.round !== true) return;
    const { dtype } = this.decls.get(name)!;
    const data = this.written.get(name)!;
    for (let i = 0; i < data.length; i++) data[i] = roundToDType(data[i]!, dtype);
  }

  weight(name: string, k: number): BufferView {
    const decl = this.weightDecls.get(name);
    if (decl === undefined) throw new Error(`weight '${name}' is not declared.`);
    if (decl.k !== k) throw new Error(`weight '${name}' has k ${decl.k}, the kernel has ${k}.`);
    let data = this.env.weights?.get(name) ?? this.built.get(name);
    const rows = sourceRows(decl) * (decl.slots?.count ?? 1);
    if (data === undefined && decl.slots !== undefined) data = new Float64Array(rows * k);
    if (data === undefined) {
      data = logicalWeight(decl, this.env.tensors ?? new Map(), this.env.round === true);
      this.built.set(name, data);
    }
    if (data.length !== rows * k)
      throw new Error(`weight '${name}' is [${rows}, ${k}] but ${data.length} elements were given.`);
    const view = { name, rows, columns: k, data };
    this.views.set(name, view);
    return view;
  }
}

function element(view: BufferView, row: number, column: number, transposed: boolean): number {
  const [i, j] = transposed ? [column, row] : [row, column];
  if (i >= view.rows || j >= view.columns) {
    throw new Error(`reads ${view.name}[${i}, ${j}], outside its [${view.rows}, ${view.columns}].`);
  }
  return view.data[i * view.columns + j]!;
}
