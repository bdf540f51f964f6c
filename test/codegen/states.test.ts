/** States in kernels: a function with state, lowered, verified, interpreted, and as generated C and CUDA. */
import { describe, expect, it } from 'vitest';
import { cpuScheduling } from '../../codegen/cpu/schedules.js';
import { cudaScheduling } from '../../codegen/cuda/encoding.js';
import { parsePlan, printPlan } from '../../driver/artifact/planJson.js';
import { checkAgainstGraph, checkPlan } from '../../driver/plan.js';
import { moduleOf } from '../../ir/graph/graph.js';
import { parseGraph, parseModule } from '../../ir/graph/parser.js';
import { printModule } from '../../ir/graph/printer.js';
import type { Kernel, KernelModule, LoopKernel } from '../../ir/kernel.js';
import { interpretModule } from '../../ir/kernelInterpreter.js';
import { printKernel } from '../../ir/kernelPrinter.js';
import { linkFunction, type Plan } from '../../ir/plan.js';
import { verifyIndices } from '../../ir/verifyIndices.js';
import { verifyKernels } from '../../ir/verifyKernel.js';
import { lower, lowerModule } from '../../passes/runPasses.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import {
  emptyMemory,
  MEMORY,
  MEMORY_CALLS,
  type MemoryCall,
  memoryGraph,
  memoryInputs,
  memoryKernels,
  memoryPlan,
  memorySizes,
  remember,
} from '../support/memoryFunction.js';
import { NUMERICS } from '../support/plans.js';
import { casesHere, thorough } from '../support/thorough.js';
import { emulateModule } from './cuda/emulate.js';
import { runGenerated, RUNNABLE } from './harness.js';

const MODULE = memoryKernels().functions[0]!;
const ISAS = RUNNABLE.filter((isa) => isa !== 'amx');

/** Runs the calls one after the other; `run` is given inputs and memory, and returns all buffers. */
function checkCalls(
  run: (call: MemoryCall, buffers: ReadonlyMap<string, Float64Array>) => ReadonlyMap<string, Float64Array>,
): void {
  const wanted = emptyMemory();
  let memory: Float64Array = Float64Array.from(wanted.flat());
  for (const call of MEMORY_CALLS) {
    const values = run(call, new Map([...memoryInputs(call), [MEMORY, memory]]));
    const found = remember(wanted, call);
    expect([...values.get('found')!]).toEqual(found.flat());
    memory = values.get(MEMORY)!;
    expect([...memory]).toEqual(wanted.flat());
  }
}

describe('a function with state', () => {
  it('reads, writes and reads again, each in a kernel that says which version of the state it finds', () => {
    expect(MODULE.kernels.map(printKernel).join('\n')).toMatchInlineSnapshot(`
      "memory_read: loop over N × 8
        sum = add(memory[old[row], column], rows[row, column])
      memory_write: loop over N × 8
        memory[slot[row]] = sum[row, column]
      memory_find: loop over Q × 8
        found = memory[entry[row], column]"
    `);
    expect(MODULE.kernels.map(({ versions }) => versions)).toEqual([{ memory: 0 }, { memory: 0 }, { memory: 1 }]);
    expect(MODULE.interface).toMatchObject({ takes: [MEMORY], gives: [MEMORY] });
    expect(MODULE.states).toEqual([{ name: MEMORY, dtype: 'f32', rows: 64, columns: 8 }]);
    expect(() => {
      verifyIndices(MODULE);
    }).not.toThrow();
  });

  it('can be interpreted', () => {
    checkCalls((call, buffers) => interpretModule(MODULE, { sizes: memorySizes(call), buffers }));
    const call = { ...MEMORY_CALLS[1]!, slot: [3, 0, 3, -1] };
    const buffers = new Map([...memoryInputs(call), [MEMORY, Float64Array.from(emptyMemory().flat())]]);
    expect(() => interpretModule(MODULE, { sizes: memorySizes(call), buffers })).toThrow("row 3 of 'memory' twice");
  });

  it.each(casesHere(ISAS, ISAS.length - 1))('is generated as C for %s', (isa) => {
    const schedules = MODULE.kernels.map(() => ({ kind: 'loop', isa, rows: 3 }) as const);
    checkCalls((call, inputs) => {
      const result = runGenerated(MODULE, { sizes: memorySizes(call), inputs, schedules, workers: 2, isQuick: true });
      expect(result.overruns).toEqual([]);
      expect(result.dirtyPads).toEqual([]);
      return result.values;
    });
  });

  it.each([false, true])('is generated as CUDA, threads in reverse order: %s', (backwards) => {
    const schedules = MODULE.kernels.map(() => ({ kind: 'loop', threads: 64 }) as const);
    checkCalls(
      (call, inputs) => emulateModule(MODULE, { sizes: memorySizes(call), inputs, schedules, backwards }).values,
    );
  });

  thorough('writes one or an odd number of columns, rounded to the type of the state', () => {
    for (const [dtype, columns] of [
      ['f32', 1],
      ['bf16', 37],
      ['f16', 3],
      ['bf16', 264],
    ] as const) {
      const graph = parseGraph(`state @kept : ${dtype}[9, ${columns}]
func @keep(%x: f32[N, ${columns}], %s: i32[N] is slot(@kept); %kept: state @kept) -> (; %kept1) {
  %y = cast(%x) {dtype = "${dtype}"} : ${dtype}[N, ${columns}]
  %kept1 = write_rows(%kept, %y, %s) : ${dtype}[9, ${columns}]
  return
}`);
      const module = lower(graph, NUMERICS);
      const sizes = { N: 5 };
      const inputs = new Map([
        ['x', Float64Array.from({ length: 5 * columns }, (_, i) => Math.fround(1 / (i + 3)))],
        ['s', Float64Array.of(8, -1, 0, 4, -1)],
        ['kept', Float64Array.from({ length: 9 * columns }, (_, i) => i % 7)],
      ]);
      const wanted = interpretModule(module, { sizes, buffers: inputs, round: true }).get('kept')!;
      const cpu = module.kernels.map(() => ({ kind: 'loop', isa: 'portable', rows: 2 }) as const);
      const got = runGenerated(module, { sizes, inputs, schedules: cpu, isQuick: true });
      expect(got.values.get('kept')).toEqual(wanted);
      expect([got.overruns, got.dirtyPads]).toEqual([[], []]);
      const cuda = module.kernels.map(() => ({ kind: 'loop', threads: 64 }) as const);
      expect(emulateModule(module, { sizes, inputs, schedules: cuda }).values.get('kept')).toEqual(wanted);
    }
  });
});

describe('the verifier of kernels', () => {
  const [read, write, find] = MODULE.kernels as [LoopKernel, LoopKernel, LoopKernel];
  const [stored] = write.outputs;
  const withKernels = (...kernels: readonly Kernel[]): KernelModule => ({ ...MODULE, kernels });
  const withInterface = (change: Partial<KernelModule['interface']>): KernelModule => ({
    ...MODULE,
    interface: { ...MODULE.interface, ...change },
  });
  const memory = MODULE.buffers.find(({ space }) => space === 'state')!;

  it.each<readonly [string, KernelModule, string]>([
    [
      'a read of an old version',
      withKernels(read, write, { ...find, versions: { memory: 0 } }),
      "made for version 0 of state 'memory', but finds version 1",
    ],
    [
      'kernels in another order',
      withKernels(read, find, write),
      "made for version 1 of state 'memory', but finds version 0",
    ],
    [
      'a write that comes twice',
      withKernels(read, write, { ...write, name: 'again' }, find),
      "made for version 0 of state 'memory', but finds version 1",
    ],
    ['a read without a version', withKernels(without(read), write, find), "made for no version of state 'memory'"],
    [
      'a version of what is not used',
      withKernels(read, write, { ...find, versions: { memory: 1, rows: 0 } }),
      "a version of 'rows', which is no state",
    ],
    [
      'a kernel that reads what it writes',
      withKernels(
        read,
        {
          ...write,
          outputs: [
            { ...stored!, value: { op: 'load', buffer: MEMORY, access: { kind: 'element', via: 'old' } } },
          ] as LoopKernel['outputs'],
        },
        find,
      ),
      "it reads state 'memory', which it writes itself",
    ],
    [
      'a write without an index',
      withKernels(read, { ...write, outputs: [{ kind: 'store', buffer: MEMORY, value: stored!.value }] }, find),
      "it writes state 'memory' otherwise than through an index",
    ],
    [
      'a write through an index to what is no state',
      withKernels(read, write, { ...find, outputs: [{ ...find.outputs[0]!, via: 'entry' }] as LoopKernel['outputs'] }),
      "'found' is no state",
    ],
    [
      'slots of other rows',
      withKernels(read, { ...write, outputs: [{ ...stored!, via: 'entry' }] as LoopKernel['outputs'] }, find),
      'as rows to write it must be i32[N, 1]',
    ],
    ['a state that nobody gives', withInterface({ gives: [] }), "State 'memory' is written and not given"],
    ['a state that nobody takes', withInterface({ takes: [] }), 'which it does not take'],
    ['a state of other rows', { ...MODULE, states: [{ ...MODULE.states[0]!, rows: 63 }] }, 'f32[63, 8]'],
    ['a state that the module lacks', { ...MODULE, states: [] }, "'memory' is no state of the module"],
    [
      'a buffer with the name of a state',
      { ...MODULE, buffers: MODULE.buffers.map((b) => (b === memory ? { ...b, space: 'arena' } : b)) },
      "'memory' has the name of a state",
    ],
    [
      'two states of one name',
      { ...MODULE, states: [MODULE.states[0]!, MODULE.states[0]!] },
      'Two states have one name',
    ],
  ])('refuses %s', (_, module, wanted) => {
    expect(() => {
      verifyKernels(module);
    }).toThrow(wanted);
  });

  it('proves slots by their role', () => {
    const withRole = (name: string, role: 'entry' | 'slot'): KernelModule =>
      withInterface({
        inputs: MODULE.interface.inputs.map((each) =>
          each.name === name ? { ...each, role: { kind: role, state: MEMORY } } : each,
        ),
      });
    expect(() => {
      verifyIndices(withRole('slot', 'entry'));
    }).toThrow("'slot' is entry(@memory); to write rows of 'memory' it must be slot(@memory)");
    expect(() => {
      verifyIndices(withRole('old', 'slot'));
    }).toThrow("'old' is slot(@memory); it may not choose among 64 rows");
  });
});

function without(kernel: LoopKernel): LoopKernel {
  const { versions: _, ...rest } = kernel;
  return rest;
}

describe('a plan with a state', () => {
  const plan = memoryPlan(cpuScheduling, { isas: ['portable'], l1: 32 << 10, l2: 1 << 20 });
  const READER = parseGraph(`state @memory : f32[64, 8]
func @recall(%entry: i32[Q] is entry(@memory); %memory: state @memory) -> (f32[Q, 8]) {
  %found = gather_rows(%memory, %entry) : f32[Q, 8]
  return %found
}`);
  const legal = { isLegal: (): true => true };

  it('survives JSON, and is the plan of its graph', () => {
    const read = parsePlan(printPlan(plan), 'plan.json', 'compile', cpuScheduling.schema);
    expect(read).toEqual(plan);
    checkPlan(read, legal);
    checkAgainstGraph(read, moduleOf(memoryGraph()), NUMERICS);
    expect(plan.functions[0]!.placements.map(({ buffer }) => buffer)).not.toContain(MEMORY);
    expect(linkFunction(plan, 'remember').states).toEqual(MODULE.states);
  });

  it('can have several functions over one state', () => {
    const module = parseModule(printModule({ name: 'keeper', functions: [memoryGraph(), READER] }));
    const { functions, ...shared } = lowerModule(module, NUMERICS);
    expect(shared.states).toEqual(MODULE.states);
    const both: Plan = {
      ...plan,
      functions: [plan.functions[0]!, { ...plan.functions[0]!, ...functions[1]!, interface: functions[1]!.interface }],
    };
    expect(() => {
      checkAgainstGraph(both, module, NUMERICS);
    }).not.toThrow();
    expect(() => {
      checkAgainstGraph(plan, module, NUMERICS);
    }).toThrow('its functions are not those of graph.tw');
    expect(() => {
      checkAgainstGraph({ ...both, states: [] }, module, NUMERICS);
    }).toThrow('its states are not those of graph.tw');
    expect(() => {
      checkAgainstGraph({ ...both, functions: both.functions.toReversed() }, module, NUMERICS);
    }).toThrow('its interface are not those of graph.tw');
  });

  it.each([
    ['a state of no rows', (text: string) => text.replace('"rows":64', '"rows":0')],
    ['a state of too many rows', (text: string) => text.replace('"rows":64', '"rows":134217729')],
    ['a name that no buffer may have', (text: string) => text.replace('"takes":["memory"]', '"takes":["Memory"]')],
    ['a version below zero', (text: string) => text.replace('"versions":{"memory":1}', '"versions":{"memory":-1}')],
  ])('refuses %s', (_, change) => {
    const text = change(printPlan(plan));
    expect(text).not.toBe(printPlan(plan));
    expect(() => parsePlan(text, 'plan.json', 'compile', cpuScheduling.schema)).toThrow(/plan\.json/);
  });

  it('leaves the names of states to functions that do not take them', () => {
    const other = parseGraph(
      'func @twice(%x: f32[N, 8]) -> (f32[N, 8]) { %memory = add(%x, %x) : f32[N, 8] return %memory }',
    );
    const { functions } = lowerModule({ name: 'm', functions: [memoryGraph(), other] }, NUMERICS);
    expect(functions[1]!.buffers.map(({ name }) => name)).toEqual(['x', 'memory_1']);
  });

  it('has schedules on a GPU too', () => {
    const cuda = memoryPlan(cudaScheduling, FACTS);
    expect(cuda.functions[0]!.schedules).toHaveLength(2);
  });
});
