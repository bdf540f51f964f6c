import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseGraph } from '../../ir/graph/parser.js';
import { printGraph } from '../../ir/graph/printer.js';
import { verifyGraph } from '../../ir/graph/verify.js';
import { OP_NAMES } from '../../ir/ops/index.js';
import { graph } from './randomGraph.js';

/** The message of the error from parsing `text`. */
function message(text: string): string {
  try {
    parseGraph(text, 'g.tw');
  } catch (error) {
    if (error instanceof Error && error.name === 'GraphSyntaxError') return error.message;
    throw error;
  }
  throw new Error('it parsed');
}

/** A graph around one line, which stands on line 4. */
const around = (line: string): string => `func @g(%x: f32[T, 4], %i: i32[T]) -> (f32[T, 4]) {
  weight @w.0 : bf16[8, 4]
  %c = const() {value = 1} : f32[]
${line}
  return %x
}
`;

describe('the text form', () => {
  it('round-trips random graphs, which verify', () => {
    const used = new Set<string>();
    fc.assert(
      fc.property(graph, (g) => {
        g.nodes.forEach((node) => used.add(node.op));
        verifyGraph(g);
        const text = printGraph(g);
        const parsed = parseGraph(text);
        expect(parsed).toEqual(g);
        expect(printGraph(parsed)).toBe(text);
      }),
      { numRuns: 400, seed: 20261121 },
    );
    expect(used.size).toBeGreaterThan(25);
  });

  it('preserves numbers to the last bit', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true }), (value) => {
        const text = around(
          '  %y = const() {value = ' +
            `${value === Infinity ? 'inf' : value === -Infinity ? '-inf' : Object.is(value, -0) ? '-0' : value}` +
            '} : f32[]',
        );
        expect(parseGraph(text).nodes[1]!.attributes).toEqual({ value });
      }),
      { seed: 1 },
    );
  });

  it('ignores comments, line ends and spaces', () => {
    const text = around('  %y = cast(%i) {dtype = "f32"} : f32[T] at "layers.0"');
    const loose = `// a comment\n${text.replaceAll('\n', ' // "{\r\n').replaceAll(' ', '\t ')}`;
    expect(printGraph(parseGraph(loose))).toBe(text);
  });

  it('fails on noise only with a GraphSyntaxError', () => {
    const text = around('  %y = reshape(%x) {shape = [4, T]} : f32[4, T] at "layers.0"');
    fc.assert(
      fc.property(
        fc.nat({ max: text.length }),
        fc.nat({ max: 8 }),
        fc.oneof(
          fc.string({ maxLength: 6 }),
          fc.constantFrom('%x', '@w', '"', '(', '[', '{', ']', 'T', '-1', '1e999', 'weight'),
        ),
        (at, cut, noise) => {
          try {
            verifyGraph(parseGraph(text.slice(0, at) + noise + text.slice(at + cut)));
          } catch (error) {
            expect(error).toMatchObject({ name: 'GraphSyntaxError' });
          }
        },
      ),
      { numRuns: 1000, seed: 7 },
    );
  });
});

describe('errors of the parser', () => {
  it('point at what breaks the grammar', () => {
    expect(message('')).toMatchInlineSnapshot(`"g.tw:1:1: found the end of the text, expected 'func'"`);
    expect(message('module @m')).toMatchInlineSnapshot(`"g.tw:1:10: found the end of the text, expected '{'"`);
    expect(message('func g()')).toMatchInlineSnapshot(`"g.tw:1:6: found 'g', expected the function's name (@name)"`);
    expect(message('func @g(x: f32[T])')).toMatchInlineSnapshot(
      `"g.tw:1:9: found 'x', expected a parameter (%name: type), ',' or ')'"`,
    );
    expect(message('func @g(%x: f32)')).toMatchInlineSnapshot(`"g.tw:1:16: found ')', expected '[' and the shape"`);
    expect(message('func @g(%x: f32[T) -> () { return %x }')).toMatchInlineSnapshot(
      `"g.tw:1:18: found ')', expected a dimension, ',' or ']'"`,
    );
    expect(message('func @g(%x: f32[T]) -> (f32[T]) { return %x')).toMatchInlineSnapshot(
      `"g.tw:1:44: found the end of the text, expected ',' or '}' after the returned values"`,
    );
    expect(message(`${around('')}graph`)).toMatchInlineSnapshot(
      `"g.tw:7:1: found 'graph', expected the end of the text: a file holds one function or module"`,
    );
    expect(message(around('  weight @w.1 : f32[4]'))).toMatchInlineSnapshot(
      `"g.tw:4:3: found 'weight', expected a node (%name = op(…) : type) or 'return' (weights come before nodes)"`,
    );
    expect(message(around('  %y = add(%x %x) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:15: found '%x', expected an operand (%name or @name), ',' or ')'"`,
    );
    expect(message(around('  %y = add(%x, 3) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:16: found '3', expected an operand (%name or @name)"`,
    );
    expect(message(around('  %y = add(%x, %x)'))).toMatchInlineSnapshot(
      `"g.tw:5:3: found 'return', expected '{' and attributes, or ':' and the result type"`,
    );
    expect(message(around('  %y = const() {value 1} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:23: found '1', expected '=' and the attribute's value"`,
    );
    expect(message(around('  %y = const() {value = } : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:25: found '}', expected a value: a number, a string, 'true', 'false' or '['"`,
    );
    expect(message(around('  %y = const() {} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:17: found '}', expected an attribute (name = value)"`,
    );
    expect(message(around('  %y = neg(%x) : f32[T, 4] at layers'))).toMatchInlineSnapshot(
      `"g.tw:4:31: found 'layers', expected a model path in quotes"`,
    );
    expect(message(around('  %y = neg(%x) : f32[T, 4] at "layers'))).toMatchInlineSnapshot(
      `"g.tw:4:31: found "\\"", expected the closing quote of a string on the same line"`,
    );
    expect(message(around('  %y = neg(%x) : f32[T, 4] # no'))).toMatchInlineSnapshot(
      `"g.tw:4:28: found "#", expected a token of the graph text form"`,
    );
  });

  it('point at names, ops, attributes and types that do not fit', () => {
    expect(message(around('  %y = add(%x, %z) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:16: found '%z', expected a value that is defined above"`,
    );
    expect(message(around('  %y = add(%y, %y) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:12: found '%y', expected a value that is defined above"`,
    );
    expect(message(around('  %y = linear(%x, @w.1) : f32[T, 8]'))).toMatchInlineSnapshot(
      `"g.tw:4:19: found '@w.1', expected a weight that is declared above"`,
    );
    expect(message(around('  %x = neg(%x) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:3: found a second '%x', expected a name that is not taken"`,
    );
    expect(message(around('  %y = softmax(%x) : f32[T, 4]'))).toBe(
      `g.tw:4:8: found 'softmax', expected an op: ${[...OP_NAMES].sort().join(', ')}`,
    );
    expect(message(around('  %y = add(%x, %i) : f32[T, 4]'))).toMatchInlineSnapshot(
      '"g.tw:4:8: found add(f32[T, 4], i32[T]), expected operands that the op accepts: operands ' +
        'have different element types: f32, i32; insert a cast"',
    );
    expect(message(around('  %y = add(%x) : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:8: found add(f32[T, 4]), expected operands that the op accepts: it takes 2 operands, not 1"`,
    );
    expect(message(around('  %y = linear(%x, @w.0) : bf16[T, 8]'))).toMatchInlineSnapshot(
      `"g.tw:4:27: found bf16[T, 8], expected f32[T, 8], the type of linear(f32[T, 4], bf16[8, 4])"`,
    );
    expect(message(around('  %y = linear(%x, @w.0) : f16[T, N]'))).toMatchInlineSnapshot(
      `"g.tw:4:34: found 'N', expected a dimension: a whole number up to 67108864, or an extent of the function: T"`,
    );
    expect(message(around('  %y = linear(%x, @w.0) : f64[T, 8]'))).toMatchInlineSnapshot(
      `"g.tw:4:27: found 'f64', expected an element type: f32, f16, bf16, e4m3, i8, i32, bool"`,
    );
    expect(message(around('  %y = const() : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:8: found 'const' without attribute 'value', expected {value = …}, a number"`,
    );
    expect(message(around('  %y = const() {value = "one"} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:17: found attribute 'value' = "one", expected a number"`,
    );
    expect(message(around('  %y = const() {value = 1, scale = 2} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:28: found attribute 'scale', expected those of 'const': value"`,
    );
    expect(message(around('  %y = const() {value = 1, value = 2} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:28: found a second 'value', expected each attribute once"`,
    );
    expect(message(around('  %y = const() {value = 1e999} : f32[]'))).toMatchInlineSnapshot(
      `"g.tw:4:25: found '1e999', expected a number that a double can hold, inf or -inf"`,
    );
    expect(message(around('  %y = cast(%x) {dtype = "f64"} : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:18: found attribute 'dtype' = "f64", expected one of "f32", "f16", "bf16", "e4m3", "i8", "i32", "bool""`,
    );
    expect(message(around('  %y = reshape(%x) {shape = [4, s]} : f32[4, T]'))).toMatchInlineSnapshot(
      `"g.tw:4:21: found attribute 'shape' = [4,"s"], expected a list of dimensions (whole ` +
        'numbers and names of extents)"',
    );
    expect(message(around('  %y = cast(%x) {dtype = "\\q"} : f32[T, 4]'))).toMatchInlineSnapshot(
      `"g.tw:4:26: found "\\q", expected a string with the escapes of JSON"`,
    );
    expect(message(around('  %y = neg(%x) : f32[T, 4] at "layers/../../etc"'))).toMatchInlineSnapshot(
      `"g.tw:4:31: found "layers/../../etc", expected a model path ("layers.3.attention")"`,
    );
    expect(message('func @g(%x: f32[T, 99999999999]) -> (f32[T]) { return %x }')).toMatchInlineSnapshot(
      `"g.tw:1:20: found '99999999999', expected a dimension: a whole number up to 67108864, or ` +
        'an extent of the function: T"',
    );
    expect(message('func @g(%x: f32[T]) -> (f32[R]) { return %x }')).toMatchInlineSnapshot(
      `"g.tw:1:29: found 'R', expected a dimension: a whole number up to 67108864, or an extent of the function: T"`,
    );
    expect(message('func @g(%x: f32[T]) -> () { return %x }')).toMatchInlineSnapshot(
      `"g.tw:1:29: found 1 returned values, expected 0, as the head of the graph declares"`,
    );
    expect(message('func @g(%x: f32[T]) -> () { return }')).toMatchInlineSnapshot(
      `"g.tw:1:29: found a graph that returns nothing, expected at least one returned value"`,
    );
    expect(message('func @g(%x: f32[T]) -> (f32[T]) { weight @w : f32[T] return %x }')).toMatchInlineSnapshot(
      `"g.tw:1:47: found f32[T], expected a fixed shape: weights have no symbols"`,
    );
  });

  it('refuse a text that is too long before reading it', () => {
    expect(() => parseGraph(' '.repeat((8 << 20) + 1), 'big.tw')).toThrow(
      'big.tw:1:1: found 8388609 characters, expected at most 8388608',
    );
  });
});
