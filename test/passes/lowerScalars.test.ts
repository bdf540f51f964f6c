import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CompileError } from '../../errors.js';
import type { Graph } from '../../ir/graph/graph.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import { printGraph } from '../../ir/graph/printer.js';
import type { LoweredModule } from '../../passes/lowerKernels.js';
import { interpretLowered, kernelsOf, lowerAsIs, printModule } from './lowered.js';
import { program } from './randomProgram.js';
import { distance, environment, parse } from './support.js';
import { isThorough } from '../support/thorough.js';

describe('scalar programs', () => {
  it('read rows, columns, elements and periods as NumPy broadcasts them', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 2, 4], %each: f32[T], %of_head: f32[T, 1, 4]) -> (f32[T, 2, 4]) {
        weight @bias : f32[8]
        %row = reshape(%each) {shape = [T, 1, 1]} : f32[T, 1, 1]
        %column = reshape(@bias) {shape = [1, 2, 4]} : f32[1, 2, 4]
        %a = mul(%x, %row) : f32[T, 2, 4]
        %b = add(%a, %column) : f32[T, 2, 4]
        %c = sub(%b, %of_head) : f32[T, 2, 4]
        return %c
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 8
        c = sub(add(mul(x[row, column], each[row]), bias_table[column]), of_head[row, column mod 4])
      "
    `);
  });

  it('read one number for all columns', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 8]) -> (f32[T, 8]) {
        weight @slope : f32[1]
        %a = mul(%x, @slope) : f32[T, 8]
        return %a
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 8
        a = mul(x[row, column], slope_table[column mod 1])
      "
    `);
  });

  it('read one value as row and as column in one kernel, computed or not', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T], %end: i32[T], %square: f32[T, T]) -> (f32[T, T], bool[T, T]) {
        %twice = add(%x, %x) : f32[T]
        %row = reshape(%twice) {shape = [T, 1]} : f32[T, 1]
        %by_row = mul(%square, %row) : f32[T, T]
        %both = add(%by_row, %twice) : f32[T, T]
        %next = add(%end, %end) : i32[T]
        %of_key = reshape(%next) {shape = [1, T]} : i32[1, T]
        %of_query = reshape(%next) {shape = [T, 1]} : i32[T, 1]
        %before = lt(%of_query, %of_key) : bool[T, T]
        return %both, %before
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × T
        both = add(mul(square[row, column], add(x[row], x[row])), add(x[column], x[column]))
        before = lt(add(end[row], end[row]), add(end[column], end[column]))
      "
    `);
  });

  it('number rows and columns, in vectors aligned with either', () => {
    expect(
      kernelsOf(`
      func @g(%square: f32[T, T], %x: f32[T, 4]) -> (f32[T, T], f32[T, 4]) {
        %index = iota() {size = [T]} : i32[T]
        %number = cast(%index) {dtype = "f32"} : f32[T]
        %a = add(%square, %number) : f32[T, T]
        %place = iota() {size = [4]} : i32[4]
        %lane = cast(%place) {dtype = "f32"} : f32[4]
        %row = reshape(%number) {shape = [T, 1]} : f32[T, 1]
        %b = mul(%x, %lane) : f32[T, 4]
        %c = add(%b, %row) : f32[T, 4]
        return %a, %c
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × T
        a = add(square[row, column], toF32(column))
      v__1: loop over T × 4
        c = add(mul(x[row, column], toF32(column)), toF32(row))
      "
    `);
  });

  it('compute vectors of literals and weights where they are read', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        weight @bias : f32[4]
        %two = const() {value = 2} : f32[]
        %v = vector() {label = "steps", values = [1, 2, 3, 4]} : f32[4]
        %doubled = mul(%v, %two) : f32[4]
        %shifted = add(%doubled, @bias) : f32[4]
        %y = mul(%x, %shifted) : f32[T, 4]
        return %y
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 4
        y = mul(x[row, column], add(mul(steps[column], 2), bias_table[column]))
      "
    `);
  });

  it('convert weights that no pass folded where they are read', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 4], %scale: f32[T, 1]) -> (f32[T, 3], f32[T, 4]) {
        weight @norm : bf16[4]
        weight @w : bf16[3, 4]
        %unit = mul(%x, %scale) : f32[T, 4]
        %weight = cast(@norm) {dtype = "f32"} : f32[4]
        %normed = mul(%unit, %weight) : f32[T, 4]
        %y = linear(%normed, @w) : f32[T, 3]
        %also = cos(%normed) : f32[T, 4]
        return %y, %also
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 4
        normed = mul(mul(x[row, column], scale[row]), toF32(norm_table[column]))
        also = cos(mul(mul(x[row, column], scale[row]), toF32(norm_table[column])))
      v__1: gemm over T, normed[T, 4]
        v_1_w0: 3 columns
          y = acc0
      "
    `);
  });

  it('sum gathered rows in a separate loop', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 4], %z: f32[R, 4], %row: i32[R]) -> (f32[R, 4]) {
        %y = neg(%x) : f32[T, 4]
        %some = gather_rows(%y, %row) : f32[R, 4]
        %total = sum(%some) : f32[R, 1]
        %out = mul(%z, %total) : f32[R, 4]
        return %out
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 4
        y = neg(x[row, column])
      v__1: loop over R × 4
        total_parts Σ= y[row[row], column]
      v__2: loop over R × 4
        out = mul(z[row, column], rowSum(total_parts))
      "
    `);
  });

  it('turn numbers into truth values by comparing with 0', () => {
    expect(
      kernelsOf(`
      func @g(%x: f32[T, 4], %n: i32[T, 1]) -> (f32[T, 4]) {
        %some = cast(%n) {dtype = "bool"} : bool[T, 1]
        %number = cast(%some) {dtype = "f32"} : f32[T, 1]
        %y = mul(%x, %number) : f32[T, 4]
        return %y
      }
    `),
    ).toMatchInlineSnapshot(`
      "
      v_: loop over T × 4
        y = mul(x[row, column], toF32(not(eq(n[row], 0))))
      "
    `);
  });

  it('round to i32 by storing, and refuse a kernel that would read the unrounded value', () => {
    const text = (rest: string, result: string): Graph =>
      parse(`
      func @g(%x: f32[T, 4], %p: bool[T, 4]) -> (${result}) {
        %whole = cast(%x) {dtype = "i32"} : i32[T, 4]
        ${rest}
      }`);
    const stored = text('return %whole', 'i32[T, 4]');
    const env = environment(stored);
    const [got] = interpretLowered(stored, lowerAsIs(stored), env, true);
    expect([...got!]).toEqual([...interpretGraph(stored, env)[0]!.data]);
    expect([...got!].some((n, i) => n !== env.params.get('x')![i])).toBe(true);

    expect(() =>
      lowerAsIs(text('%back = cast(%whole) {dtype = "f32"} : f32[T, 4]\n return %back', 'f32[T, 4]')),
    ).toThrow(
      '%whole: a cast from f32 to i32 that the same kernel reads again is not supported; only a ' +
        'stored value is rounded to i32',
    );
    for (const codes of ['e4m3', 'i8'] as const)
      expect(() =>
        lowerAsIs(
          parse(`
      func @g(%x: f32[T, 4]) -> (f32[T, 4]) {
        %codes = cast(%x) {dtype = "${codes}"} : ${codes}[T, 4]
        %back = cast(%codes) {dtype = "f32"} : f32[T, 4]
        return %back
      }`),
        ),
      ).toThrow(`only a stored value is rounded to ${codes}`);
    // A truth value, a whole number and a literal lose nothing, or are rounded here.
    const exact = parse(`
      func @g(%x: i32[T, 4], %p: bool[T, 4]) -> (i32[T, 4]) {
        %truth = cast(%p) {dtype = "i32"} : i32[T, 4]
        %almost = const() {value = 2.75} : f32[]
        %two = cast(%almost) {dtype = "i32"} : i32[]
        %a = mul(%truth, %two) : i32[T, 4]
        %b = add(%a, %x) : i32[T, 4]
        return %b
      }`);
    const both = environment(exact);
    expect([...interpretLowered(exact, lowerAsIs(exact), both)[0]!]).toEqual([...interpretGraph(exact, both)[0]!.data]);
    expect(printModule(lowerAsIs(exact))).toContain('mul(toF32(p[row, column]), 2)');
  });
});

describe('random graphs', () => {
  it('compile to kernels that compute what the graph computes, or are refused', () => {
    let accepted = 0;
    const runs = isThorough ? 1500 : 500;
    fc.assert(
      fc.property(program, (graph) => {
        let module: LoweredModule;
        try {
          module = lowerAsIs(graph);
        } catch (error) {
          if (error instanceof CompileError) return;
          throw error;
        }
        accepted++;
        const env = environment(graph);
        const got = interpretLowered(graph, module, env);
        interpretGraph(graph, env).forEach((tensor, i) =>
          expect(
            distance(tensor.data, got[i]!),
            `result ${i} of\n${printGraph(graph)}by${printModule(module)}`,
          ).toBeLessThan(1e-9),
        );
      }),
      { numRuns: runs, seed: 61 },
    );
    expect(accepted).toBeGreaterThan(runs / 2);
  });
});
