/** Checks of what kernels compute on: the extents, buffers and literal vectors that a module declares. */
import { EXTENT_NAME, type ExtentDecl, productOf } from './extents.js';
import type { BufferDecl, Kernel, KernelModule } from './kernel.js';
import { kernelReads, kernelWrites } from './kernelAccess.js';
import type { Dim } from './types.js';
import { IDENTIFIER, isExtent, MAX_EXTENT } from './verifyAnchors.js';
import { shape } from './verifyProgram.js';

/** Names of the extents, which generated functions take as parameters. */
export function verifyExtents(declared: readonly ExtentDecl[]): ReadonlySet<Dim> {
  const names = new Set<Dim>();
  for (const { name, within } of declared) {
    if (!EXTENT_NAME.test(name)) throw new Error(`${JSON.stringify(name)} is not a name of an extent.`);
    if (names.has(name)) throw new Error(`Extent ${name} is declared twice.`);
    if (within !== undefined && !names.has(within))
      throw new Error(`Extent ${name} lies within ${JSON.stringify(within)}, which is not declared before it.`);
    const factor = productOf(name)?.of;
    if (factor !== undefined && !names.has(factor))
      throw new Error(`Extent ${name} is a product of ${factor}, which is not declared before it.`);
    names.add(name);
  }
  return names;
}

/** Throws if a buffer of `module` breaks a rule; otherwise returns all of them by name. */
export function verifyBuffers(module: KernelModule, extents: ReadonlySet<Dim>): ReadonlyMap<string, BufferDecl> {
  const buffers = new Map<string, BufferDecl>();
  for (const buffer of module.buffers) verifyBuffer(buffer, buffers, extents);
  for (const buffer of module.buffers) verifyUpper(buffer, buffers);
  return buffers;
}

function verifyBuffer(buffer: BufferDecl, known: Map<string, BufferDecl>, extents: ReadonlySet<Dim>): void {
  const fail = (what: string): never => {
    throw new Error(`Buffer ${JSON.stringify(buffer.name)}: ${what}`);
  };
  if (!IDENTIFIER.test(buffer.name)) fail('the name does not match [a-z][a-z0-9_]*.');
  if (known.has(buffer.name)) fail('declared twice.');
  for (const extent of [buffer.rows, buffer.columns]) {
    if (typeof extent === 'number' && !isExtent(extent))
      fail(`${shape(buffer)} is not a shape: extents are whole numbers from 1 to ${MAX_EXTENT}.`);
    if (typeof extent === 'string' && !extents.has(extent))
      fail(`${shape(buffer)} names the extent ${extent}, which the function does not declare.`);
  }
  known.set(buffer.name, buffer);
}

/** A buffer of bytes extends the numbers of another buffer, and no other buffer does. */
function verifyUpper(buffer: BufferDecl, known: ReadonlyMap<string, BufferDecl>): void {
  const fail = (what: string): never => {
    throw new Error(`Buffer ${JSON.stringify(buffer.name)}: ${what}`);
  };
  if ((buffer.upper === undefined) !== (buffer.dtype !== 'u8'))
    fail('only a buffer of bytes names a bf16 buffer whose numbers it extends, and it must name one.');
  const upper = buffer.upper === undefined ? undefined : known.get(buffer.upper);
  if (
    buffer.upper !== undefined &&
    (upper?.dtype !== 'bf16' || upper.rows !== buffer.rows || upper.columns !== buffer.columns)
  )
    fail(`'${buffer.upper}' is not bf16${shape(buffer)}.`);
}

/** Literal vectors stand for checkpoint tensors [length, 1]. Everything that reads one must agree on its length. */
export function verifyConstants(module: KernelModule): void {
  const lengths = new Map<string, number>();
  for (const { name, values } of module.constants ?? []) {
    const fail = (what: string): never => {
      throw new Error(`Constant ${JSON.stringify(name)}: ${what}`);
    };
    if (lengths.has(name)) fail('given twice.');
    if (!isExtent(values.length) || !values.every(Number.isFinite))
      fail('its values are finite numbers, at least one.');
    lengths.set(name, values.length);
    for (const weight of module.weights) {
      const source = weight.sources.find((each) => each.tensor === name);
      if (source !== undefined && (source.rows !== values.length || weight.k !== 1))
        fail(
          `weight '${weight.name}' reads it as ${shape({ rows: source.rows, columns: weight.k })}, ` +
            `but it is [${values.length}, 1].`,
        );
    }
  }
}

// Checks of states in kernel IR: what they are, and that each kernel finds the versions that it was made for.

/** Throws where buffers and states of one name are not one memory, or the interface tells of other states. */
export function verifyStates({ states = [], buffers, interface: { takes, gives } }: KernelModule): void {
  const declared = new Map(states.map((state) => [state.name, state]));
  if (declared.size < states.length) throw new Error('Two states have one name.');
  const taken = new Set(takes);
  for (const buffer of buffers) {
    const { name, dtype, rows, columns, space } = buffer;
    const state = declared.get(name);
    if ((space === 'state') !== (state !== undefined))
      throw new Error(`Buffer '${name}' ${state === undefined ? 'is no' : 'has the name of a'} state of the module.`);
    if (state === undefined) continue;
    if (dtype !== state.dtype || rows !== state.rows || columns !== state.columns)
      throw new Error(
        `State '${name}' is ${state.dtype}[${state.rows}, ${state.columns}], its buffer ${dtype}[${rows}, ${columns}].`,
      );
    if (!taken.has(name)) throw new Error(`The function has a buffer for state '${name}', which it does not take.`);
  }
  const names = new Set(buffers.map(({ name }) => name));
  const stray = takes.find((name) => !names.has(name)) ?? gives.find((name) => !taken.has(name));
  if (stray !== undefined)
    throw new Error(`State '${stray}' is taken or given, but the function has no buffer for it.`);
  if (taken.size < takes.length || new Set(gives).size < gives.length)
    throw new Error('A function takes or gives a state twice.');
}

/**
 * Versions of states along the kernels. A kernel says which version of each state it was made for; memory holds the one
 * that the kernels before it have left. So no kernel reads a version that was overwritten, in whatever order passes or
 * an artifact put kernels.
 */
export class StateVersions {
  private readonly writes: Map<string, number>;
  private readonly gives: ReadonlySet<string>;

  constructor({ buffers, interface: { gives } }: Pick<KernelModule, 'buffers' | 'interface'>) {
    const states = buffers.filter(({ space }: BufferDecl) => space === 'state');
    this.writes = new Map(states.map(({ name }) => [name, 0]));
    this.gives = new Set(gives);
  }

  /** Calls `fail` where `kernel` is not made for what it finds; then counts its writes. */
  advance(kernel: Kernel, fail: (what: string) => never): void {
    const [reads, writes] = [kernelReads(kernel), kernelWrites(kernel)];
    const meant = new Map(Object.entries(kernel.versions ?? {}));
    for (const state of new Set([...reads, ...writes, ...meant.keys()])) {
      const count = this.writes.get(state);
      if (count === undefined) continue;
      const isRead = reads.has(state);
      const isWritten = writes.has(state);
      const version = meant.get(state);
      meant.delete(state);
      if (!isRead && !isWritten && version !== undefined) fail(`it names a version of state '${state}' and uses none.`);
      if (!isRead && !isWritten) continue;
      // Each item of a scan has read what it goes on from before it writes.
      if (isRead && isWritten && kernel.anchor !== 'scan') fail(`it reads state '${state}', which it writes itself.`);
      const wanted = version === undefined ? 'no version' : `version ${version}`;
      if (version !== count) fail(`it is made for ${wanted} of state '${state}', but finds version ${count}.`);
      if (isWritten) this.writes.set(state, count + 1);
    }
    const [unknown] = meant.keys();
    if (unknown !== undefined) fail(`it names a version of '${unknown}', which is no state.`);
  }

  /** Throws where the function gives other states than those that its kernels have written. */
  finish(): void {
    for (const [state, count] of this.writes)
      if (count > 0 !== this.gives.has(state))
        throw new Error(`State '${state}' is ${count > 0 ? 'written and not given' : 'given and not written'}.`);
  }
}
