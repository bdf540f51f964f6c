/** Kernels that choose tokens from logits, and extents that lie within others: what verifiers and calls refuse. */
import { describe, expect, it } from 'vitest';
import { parseGraph } from '../../ir/graph/parser.js';
import { printGraph } from '../../ir/graph/printer.js';
import type { BufferDecl, KernelModule, SampleKernel } from '../../ir/kernel.js';
import { printRole, type Role } from '../../ir/function.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { extentsOf } from '../../runtime/call.js';
import { sampleModule } from '../codegen/sampleModule.js';

const good = sampleModule(1000);
const kernel = good.kernels[0] as SampleKernel;
const withBuffer = (name: string, change: Partial<BufferDecl>): KernelModule => ({
  ...good,
  buffers: good.buffers.map((each) => (each.name === name ? { ...each, ...change } : each)),
});
const withKernel = (change: Partial<SampleKernel>): KernelModule => ({ ...good, kernels: [{ ...kernel, ...change }] });

describe('a kernel that chooses tokens', () => {
  it('verifies, with inputs of as many rows or more', () => {
    expect(() => verifyKernels(good)).not.toThrow();
    expect(() => verifyKernels(withBuffer('low', { rows: 'R' }))).not.toThrow();
  });

  it.each<[string, KernelModule, string]>([
    ['rows that are not the first of its inputs', withBuffer('top_k', { rows: 'T' }), "'top_k' is i32[T, 1]; as topK"],
    ['lists of different lengths', withBuffer('entry_bias', { rows: 'T' }), "'entry_bias' is f32[T, 1]"],
    ['whole numbers where shares are', withBuffer('top_p', { dtype: 'i32' }), "'top_p' is i32[F, 1]"],
    ['masks of too few words', withBuffer('mask', { columns: 31 }), "'mask' is i32[M, 31]; as mask"],
    ['too large a vocabulary', withKernel({ vocab: 1 << 19 }), '524288 tokens: it takes at least 1 and fewer than'],
    ['too many best tokens', withKernel({ best: { ...kernel.best, most: 33 } }), '33 best tokens: it finds 1 to 32.'],
    [
      'a reader of the logits that it has overwritten',
      { ...good, kernels: [kernel, { ...kernel, name: 'again' }] },
      `"again" (head.sample): it reads 'logits' before any kernel has written it`,
    ],
  ])('is refused with %s', (_title, module, message) => {
    expect(() => verifyKernels(module)).toThrow(message);
  });

  it('looks tokens up by indices that are proved', () => {
    const inputs = good.buffers
      .filter(({ space }) => space === 'input')
      .map(({ name, dtype, rows, columns }) => ({
        ...{ name, buffer: name, dtype: dtype as 'f32' | 'i32', shape: columns === 1 ? [rows] : [rows, columns] },
        role: /_token$/.test(name)
          ? ({ kind: 'token', vocab: 1000 } as const)
          : name === 'mask_row'
            ? ({ kind: 'rowOrNone', of: 'M' } as const)
            : name === 'path_row'
              ? ({ kind: 'row', of: 'T' } as const)
              : ({ kind: 'values' } as const),
      }));
    const module: KernelModule = { ...good, interface: { ...good.interface, inputs } };
    expect(() => verifyIndices(module)).not.toThrow();
    const withRole = (buffer: string, role: Role): KernelModule => ({
      ...module,
      interface: {
        ...module.interface,
        inputs: inputs.map((each) => (each.name === buffer ? { ...each, role } : each)),
      },
    });
    for (const role of [{ kind: 'values' }, { kind: 'row', of: 'M' }, { kind: 'rowOrNone', of: 'F' }] as const)
      expect(() => verifyIndices(withRole('mask_row', role))).toThrow(
        `'mask_row' is ${printRole(role)}; to choose among the rows of 'mask' it must be rowOrNone(M)`,
      );
    const loose = inputs.map((each) =>
      each.name === 'entry_token' ? { ...each, role: { kind: 'values' as const } } : each,
    );
    expect(() => verifyIndices({ ...module, interface: { ...module.interface, inputs: loose } })).toThrow(
      "'entry_token' is values; it may not choose among 1000 rows of the vocabulary",
    );
  });
});

describe('an extent within another', () => {
  const text = (extents: string): string =>
    `func @f[${extents}](%x: f32[R, 4], %y: f32[F]) -> (f32[F, 4]) {\n` +
    '  %first = first_rows(%x) {rows = [F]} : f32[F, 4]\n  return %first\n}\n';

  it('is written behind what it counts, and read back', () => {
    for (const extents of ['R rows, F filtered within R', 'R, F within R']) {
      const graph = parseGraph(text(extents), 'g.tw');
      expect(graph.extents[1]).toMatchObject({ name: 'F', within: 'R' });
      expect(printGraph(graph)).toContain(`[${extents}]`);
      expect(parseGraph(printGraph(graph), 'g.tw')).toEqual(graph);
    }
    expect(() => parseGraph(text('F within R, R'), 'g.tw')).toThrow('an extent that is listed before');
  });

  it('has no more rows in any call', () => {
    const input = (name: string, rows: string) => ({
      ...{ name, buffer: name, dtype: 'f32' as const, shape: [rows], role: { kind: 'values' as const } },
    });
    const convention = {
      ...{ name: 'f', outputs: [], takes: [], gives: [] },
      extents: [{ name: 'R' }, { name: 'F', within: 'R' }],
      inputs: [input('x', 'R'), input('y', 'F')],
    };
    const call = (rows: number, first: number) => ({ x: new Float32Array(rows), y: new Float32Array(first) });
    expect(extentsOf(convention, call(3, 3))).toEqual({ R: 3, F: 3 });
    expect(() => extentsOf(convention, call(3, 4))).toThrow('y has 4 entries, more than the 3 of x.');
  });
});
