/** Checks of states in kernel IR: what they are, and that each kernel finds the versions that it was made for. */
import type { BufferDecl, Kernel, KernelModule } from './kernel.js';
import { kernelReads, kernelWrites } from './kernelAccess.js';

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
      if (isRead && isWritten) fail(`it reads state '${state}', which it writes itself.`);
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
