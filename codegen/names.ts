/** What the names of a module stand for. */
import type { BufferDecl, KernelModule, WeightDecl } from '../ir/kernel.js';

export interface ModuleNames {
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  readonly weights: ReadonlyMap<string, WeightDecl>;
}

/** A model of 60 layers is asked for its names a thousand times, once for each candidate of a schedule. */
const known = new WeakMap<KernelModule, ModuleNames>();

/** The names of a module, which does not change. */
export function namesOf(module: KernelModule): ModuleNames {
  let names = known.get(module);
  if (names === undefined) {
    names = {
      buffers: new Map(module.buffers.map((buffer) => [buffer.name, buffer])),
      weights: new Map(module.weights.map((weight) => [weight.name, weight])),
    };
    known.set(module, names);
  }
  return names;
}
