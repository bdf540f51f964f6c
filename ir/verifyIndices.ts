/**
 * Proves that no index leaves what it indexes. An index is an input, every number of which is checked against its role
 * before a call (ir/roles), or computed by a kernel within bounds (ir/boundedValues); here these are held against the
 * rows that kernels look up with it.
 */
import { productName } from './extents.js';
import { indexBound, printRole, type Role } from './function.js';
import type { ArrangedPairs, Kernel, KernelModule, RouteKernel } from './kernel.js';
import { outputsOf, scaleBuffers } from './kernelAccess.js';
import { sourceRows } from './packing.js';
import { operands, readOf, type Scalar } from './scalar.js';
import type { Dim } from './types.js';

/** Numbers of `index` choose among `rows` rows of `what`. */
interface Lookup {
  readonly index: string;
  readonly rows: Dim;
  readonly what: string;
}

/** The slots of `index` are rows of `state`. */
interface SlotUse {
  readonly index: string;
  readonly state: string;
}

/** Throws at the first index whose role does not bound it by the rows that it chooses among. */
export function verifyIndices(module: KernelModule): void {
  const roles = new Map([...inputRoles(module), ...expertIndices(module), ...linkIndices(module)]);
  const rows = new Map<string, Dim>(module.buffers.map((buffer) => [buffer.name, buffer.rows]));
  for (const weight of module.weights) if (weight.layout === 'rows') rows.set(weight.name, sourceRows(weight));
  const states = new Map((module.states ?? []).map((state) => [state.name, state.rows]));
  for (const kernel of module.kernels) {
    const fail = (what: string): never => {
      throw new Error(`Kernel ${JSON.stringify(kernel.name)} (${kernel.path}): ${what}`);
    };
    for (const { index, rows: most, what } of lookups(kernel, rows)) {
      const role = roles.get(index);
      if (role === undefined) {
        const bounds = storedBounds(module, index, roles);
        if (bounds === undefined)
          return fail(`'${index}' chooses rows of ${what}, but is no input: nothing bounds it.`);
        const { low, high } = bounds;
        if (!(low >= 0 && typeof most === 'number' && high < most))
          fail(`'${index}' is computed, from ${low} to ${high}; it may not choose among ${most} rows of ${what}.`);
        continue;
      }
      const bound = indexBound(role, (state) => states.get(state));
      const isSafe = typeof bound === 'number' && typeof most === 'number' ? bound <= most : bound === most;
      if (!isSafe) fail(`'${index}' is ${printRole(role)}; it may not choose among ${most} rows of ${what}.`);
    }
    for (const { index, state } of slotUses(kernel)) {
      const role = roles.get(index);
      if (role === undefined) return fail(`'${index}' chooses rows of '${state}', but is no input: nothing bounds it.`);
      if (role.kind !== 'slot' || states.get(role.state) !== states.get(state))
        fail(
          `'${index}' is ${printRole(role)}; to write rows of '${state}' it must be slot(@${state}), or that of a ` +
            'state with as many rows.',
        );
    }
    if (kernel.anchor === 'sample') {
      const { maskRow, mask } = kernel.inputs;
      const role = roles.get(maskRow);
      if (role?.kind !== 'rowOrNone' || role.of !== rows.get(mask))
        fail(
          `'${maskRow}' is ${role === undefined ? 'no input' : printRole(role)}; to choose among the rows of ` +
            `'${mask}' it must be rowOrNone(${rows.get(mask)}).`,
        );
    }
    if (kernel.anchor === 'scan' && kernel.kept !== undefined) {
      const { state, from } = kernel.kept;
      const role = roles.get(from);
      if (role?.kind !== 'entryOrNone' || states.get(role.state) !== states.get(state))
        fail(
          `'${from}' is ${role === undefined ? 'no input' : printRole(role)}; to choose among rows of '${state}' it ` +
            `must be entryOrNone(@${state}), or that of a state with as many rows.`,
        );
    }
    const adapters = kernel.anchor === 'shrink' ? kernel : kernel.anchor === 'gemm' ? kernel.adapter : undefined;
    if (adapters !== undefined) {
      const role = roles.get(adapters.slot);
      if (role?.kind !== 'adapter' || role.slots > adapters.slots)
        fail(
          `'${adapters.slot}' is ${role === undefined ? 'no input' : printRole(role)}; to choose among adapters it ` +
            `must be adapter(${adapters.slots}).`,
        );
    }
    if (kernel.anchor !== 'attention') continue;
    const { mask } = kernel;
    if (mask.kind === 'column') {
      const role = roles.get(mask.subtreeEnd);
      if (role !== undefined && role.kind !== 'subtreeEnd')
        fail(`'${mask.subtreeEnd}' is ${printRole(role)}; as ends of subtrees it must be subtreeEnd.`);
    }
    // Kernels keep the scores of a whole path, which are as many as its positions.
    if (mask.kind === 'path') {
      const role = roles.get(mask.position);
      if (role?.kind !== 'depth')
        fail(`'${mask.position}' is ${role === undefined ? 'no input' : printRole(role)}; it must be an input, depth.`);
    }
  }
}

/** The role of each input buffer. Throws where buffers and interface do not tell of the same inputs. */
function inputRoles(module: KernelModule): ReadonlyMap<string, Role> {
  const roles = new Map<string, Role>();
  const buffers = new Map(module.buffers.map((buffer) => [buffer.name, buffer]));
  for (const { name, buffer: at, dtype, shape, role } of module.interface.inputs) {
    const buffer = buffers.get(at);
    if (buffer?.space !== 'input' || buffer.dtype !== dtype || buffer.rows !== shape[0])
      throw new Error(`Input ${name} is ${dtype}[${shape.join(', ')}], but ${at} is no such buffer.`);
    if (roles.has(at)) throw new Error(`Two inputs are copied to ${at}.`);
    roles.set(at, role);
  }
  const stray = module.buffers.find(({ name, space }) => space === 'input' && !roles.has(name));
  if (stray !== undefined) throw new Error(`Buffer ${stray.name} is an input that the interface does not have.`);
  const written = module.kernels.flatMap((kernel) => outputsOf(kernel)).find(({ buffer }) => roles.has(buffer));
  if (written !== undefined) throw new Error(`Input ${written.buffer} is written by a kernel.`);
  return roles;
}

const slotUses = (kernel: Kernel): readonly SlotUse[] => [
  ...outputsOf(kernel).flatMap((output) =>
    output.kind === 'store' && output.via !== undefined ? [{ index: output.via, state: output.buffer }] : [],
  ),
  ...(kernel.anchor === 'scan' && kernel.kept !== undefined
    ? kernel.kept.to.map((index) => ({ index, state: kernel.kept!.state }))
    : []),
];

function lookups(kernel: Kernel, rows: ReadonlyMap<string, Dim>): readonly Lookup[] {
  const rowsOf = (name: string): Dim => {
    const found = rows.get(name);
    if (found === undefined) throw new Error(`Kernel ${kernel.name} reads ${name}, which has no rows.`);
    return found;
  };
  const found: Lookup[] = [];
  const visit = (s: Scalar): void => {
    operands(s).forEach(visit);
    const read = readOf(s);
    if (read?.via !== undefined) found.push({ index: read.via, rows: rowsOf(read.buffer), what: `'${read.buffer}'` });
  };
  for (const { value } of outputsOf(kernel)) visit(value);
  switch (kernel.anchor) {
    case 'attention':
      if (kernel.queryRow !== undefined)
        found.push({ index: kernel.queryRow, rows: rowsOf(kernel.q), what: 'the queries' });
      if (kernel.mask.kind === 'path') {
        const { begin, key } = kernel.mask;
        found.push({ index: begin, rows: rowsOf(key), what: `'${key}'` });
        const tails = kernel.tail === undefined ? [] : [kernel.tail.k];
        for (const read of [kernel.k, kernel.v, ...scaleBuffers(kernel), ...tails])
          found.push({ index: key, rows: rowsOf(read), what: `'${read}'` });
      }
      break;
    case 'logprob':
      visit(kernel.rowScale);
      found.push({ index: kernel.target, rows: kernel.vocab, what: 'the vocabulary' });
      break;
    case 'logprobReduce':
      found.push({ index: kernel.target, rows: kernel.vocab, what: 'the vocabulary' });
      break;
    case 'sample': {
      const { entryToken, pathToken, pathRow } = kernel.inputs;
      for (const index of [entryToken, pathToken]) found.push({ index, rows: kernel.vocab, what: 'the vocabulary' });
      found.push({ index: pathRow, rows: rowsOf(pathToken), what: `'${pathToken}'` });
      break;
    }
    case 'gemm':
    case 'route':
    case 'sortByExpert':
    case 'shrink':
    case 'scan':
    case 'loop':
      break;
    case 'links':
      if (kernel.paths.kind === 'path') {
        const { begin, key } = kernel.paths;
        found.push({ index: begin, rows: rowsOf(key), what: `'${key}'` });
        found.push({ index: key, rows: kernel.rows, what: 'the tokens' });
      }
      break;
    default:
      kernel satisfies never;
  }
  return found;
}

/**
 * What kernels that arrange pairs leave: rows of a pair, and places of pairs. Throws where their experts are not those
 * that a route kernel chose among as many, or where rows of a product are not those that such a kernel arranged.
 */
function expertIndices({ kernels }: KernelModule): readonly (readonly [string, Role])[] {
  const routed = new Map(kernels.flatMap((each) => (each.anchor === 'route' ? [[each.experts, each] as const] : [])));
  type Arranging = ArrangedPairs & Pick<RouteKernel, 'rows' | 'count' | 'chosen'>;
  const arranging = kernels.flatMap((each): Arranging[] => {
    if (each.anchor === 'sortByExpert') return [each];
    return each.anchor === 'route' && each.pairs !== undefined ? [{ ...each, ...each.pairs }] : [];
  });
  const arranged = new Map(arranging.map((each) => [each.starts, each]));
  for (const kernel of kernels) {
    const fail = (what: string): never => {
      throw new Error(`Kernel ${JSON.stringify(kernel.name)} (${kernel.path}): ${what}`);
    };
    if (kernel.anchor === 'sortByExpert') {
      const from = routed.get(kernel.experts);
      if (from?.count !== kernel.count || from.chosen !== kernel.chosen || from.rows !== kernel.rows)
        fail(`'${kernel.experts}' are not experts that a kernel chose among ${kernel.count}.`);
    }
    if (kernel.anchor === 'gemm' && kernel.experts !== undefined) {
      const from = arranged.get(kernel.experts.starts);
      if (from?.count !== kernel.experts.count || productName(from.rows, from.chosen) !== kernel.rows)
        fail(`'${kernel.experts.starts}' does not say where the rows of ${kernel.experts.count} experts begin.`);
    }
  }
  return [...arranged.values()].flatMap(({ order, places, owners, rows, chosen, count }) => [
    [order, { kind: 'row', of: rows }] as const,
    ...(owners === undefined ? [] : [[owners, { kind: 'token', vocab: count }] as const]),
    ...places.map((place) => [place, { kind: 'row', of: productName(rows, chosen) }] as const),
  ]);
}

/** Rows of tokens that a links kernel finds. Throws where a scan goes by rows that no such kernel found. */
function linkIndices({ kernels }: KernelModule): readonly (readonly [string, Role])[] {
  const found = new Map(
    kernels.flatMap((each) =>
      each.anchor === 'links' ? each.before.map(({ out, back }) => [out, { back, rows: each.rows }] as const) : [],
    ),
  );
  for (const kernel of kernels) {
    if (kernel.anchor !== 'scan') continue;
    const from = found.get(kernel.before);
    if (from?.back !== 1 || from.rows !== kernel.rows)
      throw new Error(
        `Kernel ${JSON.stringify(kernel.name)} (${kernel.path}): '${kernel.before}' are not the rows before ` +
          `those of ${kernel.rows}, which a links kernel finds.`,
      );
  }
  return [...found].map(([out, { rows }]) => [out, { kind: 'row', of: rows }] as const);
}

// Bounds of whole numbers that kernels compute. A number that was made of inputs with roles, literals, minima and
// maxima may choose rows as an input may, where its bounds prove that it stays among them.

/** From `low` to `high`, both included. */
export interface Bounds {
  readonly low: number;
  readonly high: number;
}

const ANY: Bounds = { low: -Infinity, high: Infinity };

const roleBounds = (role: Role | undefined): Bounds =>
  role?.kind === 'token' ? { low: 0, high: role.vocab - 1 } : ANY;

/** Bounds of a scalar that is not NaN. A maximum or minimum of NaN and a number is the number. */
function boundsOf(s: Scalar, roles: ReadonlyMap<string, Role>): Bounds {
  switch (s.op) {
    case 'const':
      return { low: s.value, high: s.value };
    case 'load':
      return roleBounds(roles.get(s.buffer));
    case 'toF32':
      return boundsOf(s.a, roles);
    case 'select': {
      const [a, b] = [boundsOf(s.a, roles), boundsOf(s.b, roles)];
      return { low: Math.min(a.low, b.low), high: Math.max(a.high, b.high) };
    }
    case 'max':
    case 'min': {
      const [a, b] = [boundsOf(s.a, roles), boundsOf(s.b, roles)];
      const of = s.op === 'max' ? Math.max : Math.min;
      return { low: of(a.low, b.low), high: of(a.high, b.high) };
    }
    default:
      return ANY;
  }
}

/**
 * Bounds of the i32 values that kernels store in `buffer`; undefined where anything else writes it, or nothing does. A
 * value that is no whole number is rounded to one that lies between the same bounds.
 */
export function storedBounds(
  { kernels, buffers }: Pick<KernelModule, 'kernels' | 'buffers'>,
  buffer: string,
  roles: ReadonlyMap<string, Role>,
): Bounds | undefined {
  const declared = buffers.find(({ name }) => name === buffer);
  if (declared?.dtype !== 'i32' || declared.space !== 'arena') return undefined;
  const writers = kernels.flatMap((kernel) =>
    outputsOf(kernel).flatMap((output) => (output.buffer === buffer ? [{ kernel, output }] : [])),
  );
  const [only] = writers;
  if (only === undefined || writers.length > 1) return undefined;
  const { kernel, output } = only;
  // Every row that is read has been written: the kernel has the buffer's rows, and goes through all of them.
  const isWhole = kernel.anchor === 'loop' && kernel.rows === declared.rows && output.kind === 'store';
  return isWhole && output.via === undefined ? boundsOf(output.value, roles) : undefined;
}
