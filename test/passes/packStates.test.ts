/** Which states lie by column, and that kernels on a GPU write them so. */
import { describe, expect, it } from 'vitest';
import type { BufferDecl, KernelModule } from '../../ir/kernel.js';
import { columnStride, rowStride, stateBytes } from '../../ir/plan.js';
import { packStates } from '../../passes/packStates.js';
import { emulateModule } from '../codegen/cuda/emulate.js';
import { element, mul } from '../codegen/modules.js';
import { interfaceOf } from '../support/interface.js';

const [T, ROWS] = [11, 40];
/** Rows of the state for each token; −1: none. */
const SLOTS = Array.from({ length: T }, (_, i) => (i % 5 === 3 ? -1 : (i * 7 + 11) % ROWS));

const state = (columns: number): BufferDecl => ({
  ...{ name: `state${columns}`, dtype: 'f32', rows: ROWS, columns, space: 'state' },
});
/** A loop that stores `columns` squares of each token into the rows of a state that slots name. */
function moduleOf(columns: number) {
  const buffers: readonly BufferDecl[] = [
    { name: 'x', dtype: 'f32', rows: 'T', columns, space: 'input' },
    { name: 'slot', dtype: 'i32', rows: 'T', columns: 1, space: 'input' },
    state(columns),
  ];
  return {
    ...{ interface: interfaceOf([]), buffers, weights: [], constants: [] },
    states: [{ name: `state${columns}`, dtype: 'f32', rows: ROWS, columns }],
    kernels: [
      {
        ...{ anchor: 'loop', name: 'loop', path: 'test', rows: 'T', ops: [], columns },
        outputs: [{ kind: 'store', buffer: `state${columns}`, via: 'slot', value: mul(element('x'), element('x')) }],
      },
    ],
  } as const satisfies KernelModule;
}

describe('packStates', () => {
  it('lays rows with fewer columns than a vector in blocks', () => {
    const packed = packStates(moduleOf(8));
    expect(packed.states[0]).toMatchObject({ isBlocked: true });
    expect(packed.buffers.map(({ isBlocked }) => isBlocked)).toEqual([undefined, undefined, true]);
    expect(rowStride(packed.buffers[2]!, {}, 4)).toBe(8);
    expect(columnStride(packed.buffers[2]!)).toBe(32);
    expect(stateBytes(packed.states[0]!, 0)).toBe(64 * 8 * 4);
  });

  it.each([1, 32, 40])('leaves states of %i columns', (columns) => {
    const module = moduleOf(columns);
    expect(packStates(module)).toBe(module);
  });

  it('leaves keys and values, whose rows are copied in aligned pieces', () => {
    const module = moduleOf(8);
    const keys = { ...module, states: module.states.map((each) => ({ ...each, dtype: 'bf16' as const })) };
    expect(packStates(keys)).toBe(keys);
  });

  it.each([2, 7, 8, 30])('leaves rows of %i columns to kernels that write no padding', (columns) => {
    const x = Float64Array.from({ length: T * columns }, (_, i) => (i % 13) - 4);
    const { values } = emulateModule(packStates(moduleOf(columns)), {
      sizes: { T, R: 0 },
      inputs: new Map([
        ['x', x],
        ['slot', Float64Array.from(SLOTS)],
        [`state${columns}`, new Float64Array(ROWS * columns).fill(0.5)],
      ]),
      schedules: [{ kind: 'loop', threads: 64 }],
      tokensCapacity: 96,
    });
    const wanted = new Float64Array(ROWS * columns).fill(0.5);
    SLOTS.forEach((slot, token) => {
      if (slot < 0) return;
      for (let i = 0; i < columns; i++) wanted[slot * columns + i] = x[token * columns + i]! ** 2;
    });
    expect(values.get(`state${columns}`)).toEqual(wanted);
  });
});
