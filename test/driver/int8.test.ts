/**
 * Contractions of int8 on CPUs: checkpoints that store such codes are computed as they are, others are rounded while
 * they load; answers are those of float64 on the same integers, and have the same bits in every batch.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { openOrCompile } from '../../driver/compile/open.js';
import { modelFunctions } from '../../driver/functions.js';
import type { Precision } from '../../driver/precision.js';
import { cpu } from '../../driver/targets/cpu.js';
import { type CpuDevice, detectMachine, type Machine, numericsOf } from '../../driver/targets/cpuDevice.js';
import type { MicroBatch, ScoredRows } from '../../evaluate/scorer.js';
import { interpretGraph } from '../../ir/graph/interpreter.js';
import type { WeightDecl } from '../../ir/kernel.js';
import type { CpuIsa } from '../../ir/plan.js';
import type { Json } from '../../models/model/model.js';
import { CONFIG } from '../e2e/smallModel.js';
import { environment } from '../e2e/support.js';
import { temporaryFolder, writeJson } from '../models/support.js';
import { expectSame } from '../support/numbers.js';
import { FORMATS, quantizedTensors, safetensorsOf, writeQuantized } from '../support/quantizedCheckpoints.js';
import { float } from '../support/quantizeMatrix.js';
import { randomTrees } from '../support/familyTrees.js';
import { SILENT } from '../support/silent.js';
import { thorough } from '../support/thorough.js';

const SMALL: Json = { ...CONFIG, tie_word_embeddings: false };
const MACHINE = detectMachine();
const ISA: CpuIsa = MACHINE.isas.includes('avx2') ? 'avx2' : 'portable';
const trees = randomTrees(5, 48, CONFIG.vocab_size);
const SIZES = { T: trees.tokens.length, R: trees.row.length };

/** The batch, of whose last rows `scored` are asked for. */
const batchOf = (scored: number): MicroBatch => ({
  tokens: Int32Array.from(trees.tokens),
  position: Int32Array.from(trees.position),
  subtreeEnd: Int32Array.from(trees.subtreeEnd),
  row: Int32Array.from(trees.row).slice(-scored),
  target: Int32Array.from(trees.target).slice(-scored),
});

const open = (model: string, precision: Precision, isa: CpuIsa = ISA, machine: Machine = MACHINE) =>
  openOrCompile(
    { model, init: { kind: 'checkpoint' }, precision, isa, target: 'cpu', batchTokens: 48 },
    machine,
    SILENT,
  );
type Opened = Awaited<ReturnType<typeof open>>;

async function score({ checkpoint, model }: Opened, scored: number, threads = 1): Promise<ScoredRows> {
  const executor = await model.target.devices.open(
    checkpoint,
    model,
    { threads, devices: [0], rebuild: String },
    SILENT,
  );
  const rows = scoredRows(await executor.call('score', scoreInputs(batchOf(scored), executor)));
  await executor.close();
  return rows;
}

const weightsOf = ({ model }: Opened, format: string): readonly WeightDecl[] =>
  model.plan.weights.filter((weight) => weight.format === format && weight.layout === 'quads');

describe('a checkpoint with codes of int8', () => {
  beforeAll(() => {
    for (const [name, value] of Object.entries(environment())) vi.stubEnv(name, value);
  });
  const bytes = FORMATS['compressed int8 in bytes']!;
  const rows = { num_bits: 8, type: 'int', strategy: 'token', dynamic: true, symmetric: true };
  const [group] = Object.values(bytes.config['config_groups'] as Record<string, Json>);
  const saying = (activations: Json): string => {
    const dir = temporaryFolder();
    const groups = { group_0: { ...group, input_activations: activations } };
    const format = { ...bytes, config: { ...bytes.config, config_groups: groups } };
    writeQuantized(dir, SMALL, format, safetensorsOf(stored.tensors));
    return dir;
  };
  const stored = quantizedTensors(SMALL, bytes.write, 3);

  thorough('is computed with them, as float64 computes it, with the same bits in every batch', async () => {
    const opened = await open(saying(rows), 'auto');
    expect(opened.model.arithmetic).toBe('int8');
    expect(weightsOf(opened, 'i8').flatMap(({ sources, from }) => sources.map(() => from))).toEqual(
      Array<string>(14).fill('codes'),
    );
    const all = await score(opened, SIZES.R);
    const device = opened.model.device as CpuDevice;
    const [graph] = modelFunctions(opened.checkpoint, numericsOf(device.isa, device.contractions), {}).functions;
    const weights = new Map([...stored.meant].map(([name, { values }]) => [name, Float64Array.from(values)]));
    const params = new Map(Object.entries(trees).map(([name, list]) => [name, Float64Array.from(list)]));
    const [want] = interpretGraph(graph!, { sizes: SIZES, weights, params });
    // What is rounded to codes differs in the last bits of f32, so that a few numbers get the neighbouring code.
    const apart = all.logProb.map((x, i) => Math.abs(x - want!.data[i]!));
    expect(Math.max(...apart)).toBeLessThan(0.05);
    expect([...apart].sort()[apart.length >> 1]!).toBeLessThan(2e-5);

    const some = await score(opened, 5, 2);
    expectSame(Float64Array.from(some.logProb), Float64Array.from(all.logProb.slice(-5)));
    expect(cpu.manifest.restore(JSON.parse(JSON.stringify(cpu.manifest.describe(device))), MACHINE)).toEqual(device);
  });

  it.each([
    ['for f32', rows, 'f32', 0],
    ['where activations are to stay', {}, 'auto', 0],
    ['where their scales are fixed', { ...rows, dynamic: false }, 'auto', 0],
    ['unless it is asked for', {}, 'int8', 14],
  ] as const)('is decoded %s', async (_what, activations, precision, kept) => {
    const opened = await open(saying(activations), precision);
    expect(weightsOf(opened, 'i8').flatMap(({ sources }) => sources)).toHaveLength(kept);
    expect(opened.model.arithmetic).toBe(kept > 0 ? 'int8' : 'f32');
  });

  it('is multiplied by tiles of AMX, beside matrices of bf16', async () => {
    const machine: Machine = { ...MACHINE, isas: ['portable', 'avx2', 'avx512', 'amx'] };
    const opened = await open(saying(rows), 'auto', 'amx', machine);
    expect(opened.model.arithmetic).toBe('int8 and bf16');
    expect(weightsOf(opened, 'i8')).not.toHaveLength(0);
    // As the others of the plan: panels of bytes are told by their depth.
    expect(JSON.stringify(opened.model.plan.functions)).toMatch(/"isa":"amx",[^}]*"kc":256/);
  });

  it('of floats is rounded, and both say how they are computed', async () => {
    const plain = temporaryFolder();
    const wide = [...stored.meant].map(([name, { shape, values }]) => [
      name,
      float('F32', shape, Float64Array.from(values)),
    ]);
    writeJson(plain, 'config.json', SMALL);
    writeFileSync(join(plain, 'model.safetensors'), safetensorsOf(new Map(wide as [string, never][])));
    const opened = await open(plain, 'int8');
    expect(weightsOf(opened, 'i8').every(({ from }) => from === undefined)).toBe(true);
    // Rows whose largest code is 127 are the codes that the checkpoint above has.
    const [own, same] = [await score(opened, 8), await score(await open(saying(rows), 'auto'), 8)];
    own.logProb.forEach((x, i) => expect(Math.abs(x - same.logProb[i]!)).toBeLessThan(0.02));
    const device = opened.model.device as CpuDevice;
    expect(cpu.manifest.restore(JSON.parse(JSON.stringify(cpu.manifest.describe(device))), MACHINE)).toEqual(device);
  });
});
