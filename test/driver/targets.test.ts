/** A target is a record: what the driver does with one that it has never seen. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { includesOf } from '../../codegen/headers.js';
import { kernelSource } from '../../commands/inspectKernels.js';
import { scoredRows, scoreInputs } from '../../commands/scorer.js';
import { saveArtifact } from '../../driver/artifact/save.js';
import { openArtifact, openOrCompile, referenceTo } from '../../driver/compile/open.js';
import { placeModel } from '../../driver/devices/placement.js';
import { TARGETS } from '../../driver/precision.js';
import type { Ui } from '../../driver/requests.js';
import { cpu } from '../../driver/targets/cpu.js';
import { cpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { cuda } from '../../driver/targets/cuda.js';
import { cudaDevice } from '../../driver/targets/cudaDevice.js';
import { mayFeed, TARGET_RECORDS, targetOf } from '../../driver/targets/index.js';
import type { Target } from '../../driver/targets/target.js';
import { scoreOf } from '../../ir/plan.js';
import { FACTS } from '../autotune/cuda/fixture.js';
import { writeCheckpoint } from '../e2e/smallModel.js';
import { Float64Scorer } from '../examples/float64.js';
import { statePlan } from '../support/statePlan.js';
import { interpreter } from './interpreterTarget.js';

const MODEL = writeCheckpoint();
const folder = mkdtempSync(join(tmpdir(), 'tilewright-targets-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const nothing = (): void => undefined;
const ui: Ui = {
  phase: nothing,
  step: nothing,
  run: nothing,
  table: nothing,
  note: nothing,
  detail: nothing,
  warn: nothing,
};
const request = { model: MODEL, init: { kind: 'checkpoint' }, precision: 'auto', batchTokens: 32 } as const;
const rebuild = (target: string): string => `compile for ${target}`;

describe('the targets', () => {
  it('are found by every name that the command line knows, and by no other', () => {
    expect(TARGET_RECORDS.flatMap(({ names }) => names)).toEqual([...TARGETS]);
    for (const name of TARGETS) expect(targetOf(name).names).toContain(name);
    expect(() => targetOf('tpu')).toThrow(/--target "tpu": there is no such target/);
  });

  it('let calls of `step` overlap where devices compute beside the host', () => {
    expect([{ target: 'cuda' }, { target: 'cpu' }, {}].map(mayFeed)).toEqual([true, false, false]);
  });

  it('print the kernels of every function of a plan, each once', () => {
    const printed = <S, D>(target: Target<S, D>, device: D): readonly string[] => {
      const plan = statePlan(target.compiler.scheduling, device);
      const { functions } = plan;
      expect(functions.map((fn) => fn.interface.name)).toEqual(['append', 'recall']);
      const sources = target.compiler.sources(plan);
      const includable = sources.map(({ name }) => name);
      const signatures = functions.flatMap((fn) => fn.launches.map(({ signature }) => signature));
      for (const signature of signatures)
        expect(sources.filter(({ name }) => name.includes(signature))).not.toEqual([]);
      for (const { text } of sources) for (const name of includesOf(text)) expect(includable).toContain(name);
      return sources.map(({ name }) => name);
    };
    for (const names of [printed(cpu, cpuDevice(detectMachine(), 'f32')), printed(cuda, cudaDevice(FACTS, 'bf16'))])
      expect(new Set(names).size).toBe(names.length);
  });
});

describe('a third target, which no product file names', () => {
  const machine = detectMachine();
  const targets = [...TARGET_RECORDS, interpreter];

  it('compiles a model, keeps it in an artifact, and computes what the model means', async () => {
    const { checkpoint, model } = await openOrCompile({ ...request, target: 'interpreter' }, machine, ui, targets);
    expect(model).toMatchObject({ isa: 'f64', arithmetic: 'f32' });
    const kernels = await model.target.compiler.compile(model);
    const path = join(folder, 'model.tw');
    const reference = referenceTo(MODEL, checkpoint, request.init);
    await saveArtifact(path, { reference, model, kernels, isTuned: false });
    expect(readdirSync(join(path, 'kernels'))).toHaveLength(scoreOf(model.plan).kernels.length);

    const again = await openArtifact(path, machine, ui, { targets });
    expect({ ...again.model, known: model.known }).toEqual(model);
    const { stages } = placeModel(again.model, { devices: 1, rebuild });
    expect(stages).toHaveLength(1);
    expect((await kernelSource(again.model, 'layers.0.ffn.down', 32)).scheduleText).toBe('plain');

    const options = { threads: 1, devices: [0], rebuild };
    const executor = await again.model.target.devices.open(again.checkpoint, again.model, options, ui);
    const batch = {
      tokens: Int32Array.of(1, 5, 9, 7),
      position: Int32Array.of(0, 1, 2, 2),
      subtreeEnd: Int32Array.of(4, 4, 3, 4),
      row: Int32Array.of(1, 3),
      target: Int32Array.of(9, 2),
    };
    const answer = scoredRows(await executor.call('score', scoreInputs(batch, executor)));
    const right = await new Float64Scorer(checkpoint, 32).score(batch);
    expect([...answer.logProb]).toEqual([...right.logProb]);
    expect([...answer.isArgmax]).toEqual([...right.isArgmax]);
    await executor.close();
  });

  it('must match its own manifest, and is unknown where nobody provides its record', async () => {
    const path = join(folder, 'model.tw');
    await expect(openArtifact(path, machine, ui)).rejects.toThrow(
      /manifest.json: target.kind: there is no target "interp/,
    );
    const file = join(path, 'manifest.json');
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace('"bits": 53', '"bits": 24'));
    await expect(openArtifact(path, machine, ui, { targets })).rejects.toThrow(/manifest.json: target.bits/);
    writeFileSync(file, text);
  });
});
