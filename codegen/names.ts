/** Lookup of a module's declarations by name. */
import type { BufferDecl, KernelModule, WeightDecl } from '../ir/kernel.js';
import { oncePer } from '../ir/oncePer.js';

export interface ModuleNames {
  readonly buffers: ReadonlyMap<string, BufferDecl>;
  readonly weights: ReadonlyMap<string, WeightDecl>;
}

/** The names of a module. Found once, because they are looked up for each kernel and each candidate schedule. */
export const namesOf: (module: KernelModule) => ModuleNames = oncePer((module: KernelModule) => ({
  buffers: new Map(module.buffers.map((buffer) => [buffer.name, buffer])),
  weights: new Map(module.weights.map((weight) => [weight.name, weight])),
}));
