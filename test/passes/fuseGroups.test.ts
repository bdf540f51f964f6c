import { describe, expect, it } from 'vitest';
import { CompileError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import { fuseGroups } from '../../passes/fuseGroups.js';
import { KernelNames } from '../../passes/lowerBuffers.js';
import { groupPath } from '../../passes/lowering.js';
import { lower, optimize } from '../../passes/runPasses.js';
import { llama } from './llamaGraph.js';
import { BF16, F32 } from './lowered.js';
import { edit, parse } from './support.js';

/** Each group in one line: what it is, over which rows, its ops, and what it leaves in memory. */
const print = (graph: Graph): string =>
  `\n${fuseGroups(graph)
    .groups.map(
      (g) =>
        `${g.kind} over ${g.rows}${g.columns === undefined ? '' : ` × ${g.columns}`}: ` +
        `${[...g.anchors, ...g.members].map((n) => n.op).join(' ')} → ` +
        `${[...g.stored].map((v) => `%${v.name}`).join(' ')}`,
    )
    .join('\n')}\n`;

const LAYER = `
  func @g(%x: f32[T, 8], %h: f32[T, 4]) -> (f32[T, 4], f32[T, 3]) {
    weight @a : f32[4, 8]
    weight @b : f32[3, 4]
    %y = linear(%x, @a) : f32[T, 4]
    %residual = add(%y, %h) : f32[T, 4]
    %square = mul(%residual, %residual) : f32[T, 4]
    %mean = mean(%square) : f32[T, 1]
    %eps = const() {value = 0.01} : f32[]
    %safe = add(%mean, %eps) : f32[T, 1]
    %scale = rsqrt(%safe) : f32[T, 1]
    %z = linear(%residual, @b) : f32[T, 3]
    %scaled = mul(%z, %scale) : f32[T, 3]
    return %residual, %scaled
  }
`;

describe('fuseGroups', () => {
  it('leaves sums of squares behind one contraction and scales by them behind the next', () => {
    expect(print(parse(LAYER))).toMatchInlineSnapshot(`
      "
      gemm over T: linear add mul mean → %residual
      gemm over T: linear mul → %scaled
      "
    `);
  });

  it('puts contractions that read one value into one kernel, with what joins their results', () => {
    expect(
      print(
        parse(`
      func @g(%x: f32[T, 4]) -> (f32[T, 2], f32[T, 3]) {
        weight @gate : f32[2, 4]
        weight @up : f32[2, 4]
        weight @other : f32[3, 4]
        %a = linear(%x, @gate) : f32[T, 2]
        %b = linear(%x, @up) : f32[T, 2]
        %both = mul(%a, %b) : f32[T, 2]
        %c = linear(%x, @other) : f32[T, 3]
        return %both, %c
      }
    `),
      ),
    ).toMatchInlineSnapshot(`
      "
      gemm over T: linear linear linear mul → %both %c
      "
    `);
  });

  it('does not join what is not ready when the contraction starts', () => {
    expect(
      print(
        parse(`
      func @g(%x: f32[T, 4], %u: f32[T, 4]) -> (f32[T, 2], f32[T, 2]) {
        weight @a : f32[2, 4]
        weight @b : f32[2, 4]
        %p = linear(%x, @a) : f32[T, 2]
        %v = exp(%u) : f32[T, 4]
        %q = linear(%v, @b) : f32[T, 2]
        %late = add(%p, %q) : f32[T, 2]
        %total = sum(%q) : f32[T, 1]
        %scaled = mul(%q, %total) : f32[T, 2]
        return %late, %scaled
      }
    `),
      ),
    ).toMatchInlineSnapshot(`
      "
      gemm over T: linear → %p
      loop over T × 4: exp → %v
      gemm over T: linear add sum → %q %late
      loop over T × 2: mul → %scaled
      "
    `);
  });

  it('does not widen an epilogue: a product of one column with many becomes a loop', () => {
    expect(
      print(
        parse(`
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        weight @a : f32[1, 4]
        %gate = linear(%x, @a) : f32[T, 1]
        %gated = mul(%x, %gate) : f32[T, 4]
        return %gated
      }
    `),
      ),
    ).toMatchInlineSnapshot(`
      "
      gemm over T: linear → %gate
      loop over T × 4: mul → %gated
      "
    `);
  });

  it('lets an attention round its own result if nothing reads it unrounded', () => {
    const text = `
      func @g(%q: f32[T, 2, 4], %end: i32[T]) -> (f32[T, 3]) {
        weight @o : bf16[3, 8]
        %mixed = attention(%q, %q, %q, %end) {mask = "column", scale = 0.5} : f32[T, 2, 4]
        %flat = reshape(%mixed) {shape = [T, 8]} : f32[T, 8]
        %narrow = cast(%flat) {dtype = "bf16"} : bf16[T, 8]
        %o = linear(%narrow, @o) : f32[T, 3]
        return %o
      }
    `;
    expect(print(parse(text))).toMatchInlineSnapshot(`
      "
      attention over T: attention cast → %narrow
      gemm over T: linear → %o
      "
    `);
    const returned = edit(text, ['-> (f32[T, 3])', '-> (f32[T, 3], f32[T, 2, 4])'], ['return %o', 'return %o, %mixed']);
    const read = edit(
      text,
      ['-> (f32[T, 3])', '-> (f32[T, 3], f32[T, 8])'],
      ['        return %o', '        %also = neg(%flat) : f32[T, 8]\n        return %o, %also'],
    );
    const truth = edit(
      text,
      ['dtype = "bf16"', 'dtype = "bool"'],
      ['%narrow = cast(%flat) {dtype = "bool"} : bf16[T, 8]', '%narrow = cast(%flat) {dtype = "bool"} : bool[T, 8]'],
      ['%o = linear(%narrow', '%wide = cast(%narrow) {dtype = "f32"} : f32[T, 8]\n        %o = linear(%wide'],
    );
    for (const other of [returned, read, truth]) {
      const attention = fuseGroups(parse(other)).groups.find((g) => g.kind === 'attention')!;
      expect(attention.members).toEqual([]);
      expect([...attention.stored].map((v) => v.name)).toEqual(['mixed']);
    }
  });

  it('computes values of one element a row wherever they are read, and writes them only if memory needs them', () => {
    expect(
      print(
        parse(`
      func @g(%x: f32[T, 4], %position: i32[T]) -> (f32[T, 4], i32[T]) {
        %next = add(%position, %position) : i32[T]
        %number = cast(%next) {dtype = "f32"} : f32[T]
        %column = reshape(%number) {shape = [T, 1]} : f32[T, 1]
        %y = mul(%x, %column) : f32[T, 4]
        return %y, %next
      }
    `),
      ),
    ).toMatchInlineSnapshot(`
      "
      loop over T × 4: mul → %y
      loop over T × 1: add → %next
      "
    `);
  });

  it('reads a gathered row from memory, never from the kernel that computes it', () => {
    expect(
      print(
        parse(`
      func @g(%x: f32[T, 4], %row: i32[R]) -> (f32[R, 4]) {
        %y = exp(%x) : f32[T, 4]
        %scored = gather_rows(%y, %row) : f32[R, 4]
        %twice = add(%scored, %scored) : f32[R, 4]
        return %twice
      }
    `),
      ),
    ).toMatchInlineSnapshot(`
      "
      loop over T × 4: exp → %y
      loop over R × 4: add → %twice
      "
    `);
  });
});

describe('a LLaMA layer', () => {
  it.each([
    ['f32', F32],
    ['bf16', BF16],
  ] as const)('has five groups in %s, the last of them over scored rows', (_name, numerics) => {
    const { groups } = fuseGroups(optimize(llama(), numerics));
    const kinds = groups.map((g) => `${groupPath(g)} ${g.kind} ${g.rows}`);
    expect(kinds).toEqual([
      'prepare loop T',
      'embed loop T',
      'layers.0.attention.qkv gemm T',
      'layers.0.attention.mix attention T',
      'layers.0.attention.o gemm T',
      'layers.0.ffn.gate_up gemm T',
      'layers.0.ffn.down gemm T',
      'layers.1.attention.qkv gemm T',
      'layers.1.attention.mix attention R',
      'layers.1.attention.o gemm R',
      'layers.1.ffn.gate_up gemm R',
      'layers.1.ffn.down gemm R',
      'head logprob R',
    ]);
    expect(lower(optimize(llama(), numerics), numerics).kernels.length).toBe(groups.length + 1);
  });
});

describe('names of kernels', () => {
  it('consist of lower case, digits and _, and each is given once', () => {
    const names = new KernelNames();
    expect(
      [
        'layers.0.attention.qkv',
        'subtreeEnd',
        'model.embed_tokens.weight',
        '0',
        '',
        'a b',
        'a.b',
        'a_b',
        'ÄÖ',
        'subtree_end',
      ].map((hint) => names.unique(hint)),
    ).toEqual([
      'layers_0_attention_qkv',
      'subtree_end',
      'model_embed_tokens_weight',
      'v_0',
      'v_',
      'a_b',
      'a_b_1',
      'a_b_2',
      'v__1',
      'subtree_end_1',
    ]);
  });
});

describe('graphs that no kernel computes', () => {
  const refused = (text: string): string => {
    try {
      fuseGroups(parse(text));
    } catch (error) {
      if (error instanceof CompileError) return error.message;
      throw error;
    }
    throw new Error('it was fused');
  };
  const body = (lines: string, result: string, params = ''): string => `
    func @g(%x: f32[T, 4], %heads: f32[T, 2, 2], %row: i32[R]${params}) -> (${result.slice(result.indexOf(' ') + 1)}) {
      weight @w : f32[3, 4]
      weight @v : f32[3, 2]
      ${lines}
      return ${result.slice(0, result.indexOf(' '))}
    }`;

  it('are refused with the name of the value at fault', () => {
    expect(refused(body('%y = matmul(%heads, %heads) : f32[T, 2, 2]', '%y f32[T, 2, 2]'))).toMatchInlineSnapshot(
      `"no kernel for 'matmul' (%y) outside attention: recognizeAttention did not match it"`,
    );
    expect(refused(body('%y = reduce_max(%x) : f32[T, 1]', '%y f32[T, 1]'))).toMatchInlineSnapshot(
      `"no kernel for 'reduce_max' (%y): 4 columns are no multiple of 16"`,
    );
    expect(
      refused(body('%y = sum(%deep) : f32[T, 2, 2, 1]', '%y f32[T, 2, 2, 1]', ', %deep: f32[T, 2, 2, 2]')),
    ).toMatchInlineSnapshot(
      `"%y: no kernel for 'sum' over the last axis of [T, 2, 2, 2]; whole rows of a value [rows, ` +
        'K], or segments of them as [rows, n, K / n], can be summed"',
    );
    expect(
      refused(
        body('%y = mean(%square) : f32[T, 1]\n %z = mul(%x, %y) : f32[T, 4]', '%z f32[T, 4]', ', %square: f32[T, T]'),
      ),
    ).toMatchInlineSnapshot(
      `"%y: no kernel for 'mean' over the last axis of [T, T]; whole rows of a value [rows, K], ` +
        'or segments of them as [rows, n, K / n], can be summed"',
    );
    expect(
      refused(body('%y = transpose(%heads) {order = [0, 2, 1]} : f32[T, 2, 2]', '%y f32[T, 2, 2]')),
    ).toMatchInlineSnapshot(`"no kernel for 'transpose' (%y) outside the patterns that passes recognize"`);
    expect(
      refused(body('%y = gather_rows(%x, %row) : f32[R, 4]\n %z = linear(%y, @w) : f32[R, 3]', '%z f32[R, 3]')),
    ).toMatchInlineSnapshot(`"%y is a gather that a contraction reads: pruneDeadRows should have moved it"`);
    expect(refused(body('%z = linear(%heads, @v) : f32[T, 2, 3]', '%z f32[T, 2, 3]'))).toMatchInlineSnapshot(
      `"%z: no kernel for linear of f32[T, 2, 2]; the left operand must be f32, bf16, f16, e4m3 or i8[rows, K]"`,
    );
    expect(
      refused(body('%y = cast(%x) {dtype = "i32"} : i32[T, 4]\n %z = linear(%y, @w) : f32[T, 3]', '%z f32[T, 3]')),
    ).toMatchInlineSnapshot(
      `"%z: no kernel for linear of i32[T, 4]; the left operand must be f32, bf16, f16, e4m3 or i8[rows, K]"`,
    );
    expect(
      refused(body('%y = exp(%x) : f32[T, 4]\n %z = gather_rows(%y, %row) : f32[R, 4]', '%z f32[R, 4]')),
    ).toMatchInlineSnapshot(`"%z is returned, but no kernel writes this gather; return a value computed from it"`);
    expect(refused(body('%y = neg(@w) : f32[3, 4]', '%y f32[3, 4]'))).toMatchInlineSnapshot(
      `"%y is returned, but no kernel computes it: it is a parameter, or depends on weights alone"`,
    );
    expect(refused(body('%y = neg(%x) : f32[T, 4]', '%x f32[T, 4]'))).toMatchInlineSnapshot(
      `"%x is returned, but no kernel computes it: it is a parameter, or depends on weights alone"`,
    );
    expect(refused(body('%y = sum(%x) : f32[T, 1]', '%y f32[T, 1]'))).toMatchInlineSnapshot(
      `"%y = sum(…) is needed in memory, but no kernel writes it: its readers recompute it"`,
    );
    expect(refused(body('%y = iota() {size = [T]} : i32[T]', '%y i32[T]'))).toMatchInlineSnapshot(
      `"%y = iota(…) is needed in memory, but no kernel writes it: its readers recompute it"`,
    );
  });
});
