/** States in the graph IR: a function with state, its text, and graphs that break each rule. */
import { describe, expect, it } from 'vitest';
import { moduleOf, type Graph, type GraphModule } from '../../ir/graph/graph.js';
import { interpretFunction } from '../../ir/graph/interpreter.js';
import { parseGraph, parseModule } from '../../ir/graph/parser.js';
import { printGraph, printModule } from '../../ir/graph/printer.js';
import { verifyGraph, verifyModule } from '../../ir/graph/verify.js';
import { versionsOf } from '../../ir/graph/versions.js';
import { eliminateCommonSubexpressions } from '../../passes/eliminateCommonSubexpressions.js';
import { eliminateDeadCode } from '../../passes/eliminateDeadCode.js';
import {
  emptyMemory,
  memoryGraph,
  memoryInputs,
  memorySizes,
  MEMORY,
  MEMORY_CALLS,
  remember,
} from '../support/memoryFunction.js';

const GRAPH = memoryGraph();
const TEXT = `state @memory : f32[64, 8]
func @remember[N new, Q queries](%rows: f32[N, 8], %slot: i32[N] is slot(@memory), %old: i32[N] is entry(@memory), \
%entry: i32[Q] is entry(@memory); %memory: state @memory) -> (%found: f32[Q, 8]; %after) {
  %before = gather_rows(%memory, %old) : f32[N, 8] at "memory.read"
  %sum = add(%before, %rows) : f32[N, 8] at "memory.read"
  %after = write_rows(%memory, %sum, %slot) : f32[64, 8] at "memory.write"
  %found = gather_rows(%after, %entry) : f32[Q, 8] at "memory.find"
  return %found
}
`.replaceAll('\\\n', '');

describe('a function with state', () => {
  it('prints its states above the function, and round-trips', () => {
    expect(printGraph(GRAPH)).toBe(TEXT);
    expect(parseGraph(TEXT)).toEqual(GRAPH);
    expect(parseModule(TEXT)).toEqual(moduleOf(GRAPH));
  });

  it('leaves its state to the next call', () => {
    const wanted = emptyMemory();
    let states: ReadonlyMap<string, Float64Array> = new Map([[MEMORY, Float64Array.from(wanted.flat())]]);
    for (const call of MEMORY_CALLS) {
      const before = states.get(MEMORY)!.slice();
      const outcome = interpretFunction(GRAPH, {
        sizes: memorySizes(call),
        params: memoryInputs(call),
        states,
        weights: new Map(),
      });
      expect(states.get(MEMORY)).toEqual(before);
      expect([...outcome.results[0]!.data]).toEqual(remember(wanted, call).flat());
      expect([...outcome.states.get(MEMORY)!]).toEqual(wanted.flat());
      states = outcome.states;
    }
  });

  it('refuses a row that two rows are written to, and a state that is missing', () => {
    const call = { ...MEMORY_CALLS[1]!, slot: [3, 0, 3, -1] };
    const env = { sizes: memorySizes(call), params: memoryInputs(call), weights: new Map<string, Float64Array>() };
    const states = new Map([[MEMORY, Float64Array.from(emptyMemory().flat())]]);
    expect(() => interpretFunction(GRAPH, { ...env, states })).toThrow('slot 3 at position 2 comes twice');
    expect(() => interpretFunction(GRAPH, env)).toThrow('%memory : f32[64, 8] was not given');
  });
});

const READER = parseGraph(`state @memory : f32[64, 8]
func @recall(%entry: i32[Entries] is entry(@memory); %memory: state @memory) -> (f32[Entries, 8]) {
  %found = gather_rows(%memory, %entry) : f32[Entries, 8]
  return %found
}`);

describe('modules', () => {
  const MODULE: GraphModule = { name: 'keeper', functions: [GRAPH, READER] };

  it('print their states once, and round-trip', () => {
    const text = printModule(MODULE);
    expect(text.match(/state @memory : f32\[64, 8\]/g)).toHaveLength(1);
    expect(parseModule(text)).toEqual(MODULE);
    expect(printModule(parseModule(text))).toBe(text);
    expect(() => verifyModule(MODULE)).not.toThrow();
  });

  it('refuse two functions of one name, and states of one name and two types', () => {
    expect(() => verifyModule({ name: 'm', functions: [GRAPH, GRAPH] })).toThrow(
      'Module @m: two functions are called @remember',
    );
    const larger = parseGraph(printGraph(READER).replaceAll('f32[64, 8]', 'f32[65, 8]'));
    expect(() => verifyModule({ name: 'm', functions: [GRAPH, larger] })).toThrow(
      'state memory is f32[64, 8] and, in @recall, f32[65, 8]',
    );
    expect(() => verifyModule({ name: 'm', functions: [] })).toThrow('it has no function');
    expect(() => verifyModule({ name: 'm-1', functions: [GRAPH] })).toThrow('"m-1" is not an identifier');
  });

  const message = (text: string): string => {
    try {
      parseModule(text, 'm.tw');
    } catch (error) {
      if (error instanceof Error && error.name === 'GraphSyntaxError') return error.message;
      throw error;
    }
    throw new Error('it parsed');
  };
  it.each([
    [
      'a state that is not declared',
      TEXT.slice(TEXT.indexOf('func')),
      "found '@memory', expected a state that is declared above",
    ],
    [
      'a state under another name',
      TEXT.replace('; %memory:', '; %kept:'),
      "found '%kept', expected %memory, the name of the state",
    ],
    [
      'a state that nobody takes',
      `state @spare : f32[2]\n${TEXT}`,
      'found @spare, expected a state that a function takes',
    ],
    [
      'a state declared twice',
      `state @memory : f32[2]\n${TEXT}`,
      "found a second '@memory', expected a name that is not taken",
    ],
    ['a state with an extent', TEXT.replace('f32[64, 8]', 'f32[N, 8]'), "found 'N', expected a dimension"],
    ['a state with a capital', TEXT.replaceAll('@memory', '@Memory'), "found '@Memory', expected a name: [a-z]"],
    [
      'a module that does not end',
      `module @m {\n${TEXT}`,
      "found the end of the text, expected another function or '}'",
    ],
    ['a module without functions', 'module @m { state @kv : f32[2] }', "found '}', expected 'func'"],
    ['a module of another name', `module @a.b {\n${TEXT}}`, "found '@a.b', expected a name"],
    [
      'two functions outside a module',
      TEXT + TEXT,
      'expected the end of the text: a file holds one function or module',
    ],
    ['nothing behind a semicolon', TEXT.replace('; %after', ';'), "found ')', expected a version of a state (%name)"],
  ])('refuse %s', (_, text, wanted) => {
    expect(message(text)).toContain(wanted);
  });

  it('of several functions are not graphs', () => {
    expect(() => parseGraph(printModule(MODULE))).toThrow('found a module of several functions, expected one function');
  });
});

describe('versions of a state', () => {
  const body = (...lines: readonly string[]): Graph =>
    parseGraph(`state @m : f32[4, 2]
func @f(%x: f32[N, 2], %s: i32[N] is slot(@m), %e: i32[N] is entry(@m); %m: state @m) -> (${lines.at(-1)!}) {
${lines.slice(0, -2).join('\n')}
  return ${lines.at(-2)!}
}`);
  const READ = '  %r = gather_rows(%m, %e) : f32[N, 2]';
  const WRITE = '  %m1 = write_rows(%m, %x, %s) : f32[4, 2]';

  it('are counted from the state on', () => {
    const graph = body(WRITE, '  %m2 = write_rows(%m1, %x, %s) : f32[4, 2]', '', '; %m2');
    verifyGraph(graph);
    expect([...versionsOf(graph)].map(([{ name }, { writes }]) => [name, writes])).toEqual([
      ['m', 0],
      ['m1', 1],
      ['m2', 2],
    ]);
    expect(printGraph(parseGraph(printGraph(graph)))).toBe(printGraph(graph));
  });

  it.each<readonly [string, readonly string[], string]>([
    ['a read of an old version', [WRITE, READ, '%r', 'f32[N, 2]; %m1'], '%m is an old version of state m'],
    [
      'a write of an old version',
      [WRITE, '  %m2 = write_rows(%m, %x, %s) : f32[4, 2]', '', '; %m2'],
      '%m is an old version of state m: a write before this has replaced it',
    ],
    ['a write that is not given', [READ, WRITE, '%r', 'f32[N, 2]'], 'it writes state m and does not give %m1'],
    [
      'an old version that is given',
      [WRITE, '  %m2 = write_rows(%m1, %x, %s) : f32[4, 2]', '', '; %m1'],
      'it gives %m1, which is an old version of state m',
    ],
    ['a state that is given and not written', [READ, '%r', 'f32[N, 2]; %m'], 'it gives %m, which no write has made'],
    ['a value that is given', [READ, '%r', 'f32[N, 2]; %r'], 'it gives %r, which no write has made'],
    ['a state given twice', [WRITE, '', '; %m1, %m1'], 'it gives state m twice'],
    [
      'a state that is returned',
      [WRITE, '%m1', 'f32[4, 2]; %m1'],
      '%m1 is a version of a state: it is given, not returned',
    ],
    [
      'a state that is computed with',
      ['  %n = neg(%m) : f32[4, 2]', '%n', 'f32[4, 2]'],
      '%m is a version of state m: only reads and writes of rows take it',
    ],
  ])('refuse %s', (_, lines, wanted) => {
    expect(() => verifyGraph(body(...lines))).toThrow(wanted);
  });

  it('refuse roles of a state that the function does not take', () => {
    const graph = parseGraph('func @f(%e: i32[N] is entry(@m)) -> (i32[N]) { return %e }');
    expect(() => verifyGraph(graph)).toThrow('%e is entry(@m), but the function takes no state m');
  });
});

describe('passes on states', () => {
  const graph = parseGraph(`state @m : f32[4, 2]
func @f(%x: f32[N, 2], %s: i32[N] is slot(@m), %e: i32[N] is entry(@m); %m: state @m) -> (f32[N, 2]; %m1) {
  %a = gather_rows(%m, %e) : f32[N, 2]
  %b = gather_rows(%m, %e) : f32[N, 2]
  %twice = add(%a, %b) : f32[N, 2]
  %m1 = write_rows(%m, %twice, %s) : f32[4, 2]
  %c = gather_rows(%m1, %e) : f32[N, 2]
  %sum = add(%a, %c) : f32[N, 2]
  %unread = neg(%c) : f32[N, 2]
  return %sum
}`);

  it('merge reads of one version, and keep reads of different versions apart', () => {
    const merged = eliminateCommonSubexpressions(graph);
    verifyGraph(merged);
    expect(merged.nodes.map(({ result }) => result.name)).toEqual(['a', 'twice', 'm1', 'c', 'sum', 'unread']);
    expect(merged.gives[0]!.name).toBe('m1');
    expect(merged.gives[0]).toBe(merged.nodes[2]!.result);
  });

  it('keep a write that only the next call reads', () => {
    const alive = eliminateDeadCode({ ...graph, results: [], outputs: [] });
    verifyGraph(alive);
    expect(alive.nodes.map(({ result }) => result.name)).toEqual(['a', 'b', 'twice', 'm1']);
  });
});
