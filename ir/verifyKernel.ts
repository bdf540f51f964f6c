/**
 * Verifier of kernel IR. It runs on every module before code generation. Names from here appear in generated source, so
 * the identifier grammar is checked too.
 */
import { loopDomains, type BufferDecl, type KernelModule, type WeightDecl } from './kernel.js';
import { StateVersions, verifyStates } from './verifyStates.js';
import { IDENTIFIER, verifyWeight } from './verifyWeight.js';
import { verifyBuffers, verifyConstants, verifyExtents } from './verifyBuffers.js';
import { KernelVerifier } from './kernelVerifier.js';

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
  for (const kernel of module.kernels) {
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
