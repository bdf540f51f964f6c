/** Checks of what kernels compute on: the extents, buffers and literal vectors that a module declares. */
import type { BufferDecl, KernelModule } from './kernel.js';
import { shape } from './verifyProgram.js';
import { EXTENT_NAME, productOf, type ExtentDecl } from './extents.js';
import { IDENTIFIER, isExtent, MAX_EXTENT } from './verifyWeight.js';
import type { Dim } from './types.js';

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
