/** Lookup of a module's declarations by name. */
import type { BufferDecl, KernelModule, WeightDecl } from '../ir/kernel.js';

export interface ModuleNames {
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  readonly weights: ReadonlyMap<string, WeightDecl>;
}

/** Cached, because names are looked up for each candidate schedule: a thousand times for a model of 60 layers. */
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
