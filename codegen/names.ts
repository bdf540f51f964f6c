/** What the names of a module stand for. */
import type { BufferDecl, KernelModule, WeightDecl } from '../ir/kernel.js';

export interface ModuleNames {
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  readonly weights: ReadonlyMap<string, WeightDecl>;
}

/** For a model of 60 layers, names are looked up a thousand times, once for each candidate schedule. */
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
