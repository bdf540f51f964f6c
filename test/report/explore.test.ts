import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { collectExplored, explore, type ExploreSections } from '../../commands/explore.js';
import { functionOf, inspectModel, stageSize } from '../../commands/inspect.js';
import { kernelRows, typicalSize } from '../../commands/inspectKernels.js';
import { cudaHeadersOf } from '../../codegen/cuda/index.js';
import { parseGraph } from '../../ir/graph/parser.js';
import { scoreOf } from '../../ir/plan.js';
import { programOfGraph } from '../../report/collect/program.js';
import { changes, fold, Pool, ranges } from '../../report/collect/stages.js';
import type { Stage, Unit } from '../../report/document/explore.js';
import { thorough } from '../support/thorough.js';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const DEMO = {
  model: join(ROOT, 'models', 'demo'),
  init: { kind: 'checkpoint' },
  precision: 'auto',
  isa: 'portable',
} as const;
const LARGE = {
  ...{ model: join(ROOT, 'bench', 'models', 'llama-33b', 'config.json'), init: { kind: 'random', seed: 1 } as const },
  precision: 'auto',
  target: 'cuda:sm_90a',
} as const;

const folder = mkdtempSync(join(tmpdir(), 'tilewright-explore-'));
afterAll(() => rmSync(folder, { recursive: true }));

const program = (body: string) => programOfGraph(parseGraph(`func @f(%a: f32[T, 4]) -> (f32[T, 4]) {\n${body}}\n`));
const shown = (last: string, next: string): string =>
  changes(program(last), program(next))
    .map(({ sign, op, id }) => `${sign}${op} ${id}`)
    .join(', ');

describe('changes of a graph', () => {
  it('are ops that came, went, or read something else', () => {
    const last = '%x = exp(%a) : f32[T, 4]\n%y = exp(%a) : f32[T, 4]\n%z = add(%x, %y) : f32[T, 4]\nreturn %z\n';
    const next = '%x = exp(%a) : f32[T, 4]\n%z = add(%x, %x) : f32[T, 4]\n%w = neg(%z) : f32[T, 4]\nreturn %w\n';
    expect(shown(last, next)).toBe('exp x, -exp y, ~add z, +neg w');
  });

  it('are none where only names differ', () => {
    const last = '%x = exp(%a) : f32[T, 4]\n%z = neg(%x) : f32[T, 4]\nreturn %z\n';
    const next = '%p = exp(%a) : f32[T, 4]\n%q = neg(%p) : f32[T, 4]\nreturn %q\n';
    expect(shown(last, next)).toBe('exp p, neg q');
  });

  it('are both where another op takes a name', () => {
    const last = '%x = exp(%a) : f32[T, 4]\nreturn %x\n';
    expect(shown(last, '%x = neg(%a) : f32[T, 4]\nreturn %x\n')).toBe('-exp x, +neg x');
  });
});

describe('layers', () => {
  const layer = (i: number, op: string): string =>
    `%h${i} = ${op}(${i === 0 ? '%a' : `%h${i - 1}`}) : f32[T, 4] at "layers.${i}.ffn"\n`;
  const folded = (ops: readonly string[]) => {
    const { ops: all, given } = program(`${ops.map((op, i) => layer(i, op)).join('')}return %h${ops.length - 1}\n`);
    const pool = new Pool<Unit>();
    const parts = fold(
      all.map((op) => ({ ...op, sign: '' as const })),
      { given, pool },
    );
    return { parts, units: pool.all };
  };

  it('that are equal up to names are one part, with what flows from one to the next', () => {
    const { parts, units } = folded(['exp', 'exp', 'exp', 'neg']);
    expect(parts.map(({ title, count }) => [title, count])).toEqual([
      ['layers 0–2', 3],
      ['layer 3', 1],
    ]);
    expect(parts.map(({ from }) => from)).toEqual([[[[0, 0]]], [[[0, 0]]]]);
    expect(units).toHaveLength(2);
  });

  it('that take turns are two parts', () => {
    const { parts } = folded(['exp', 'neg', 'exp', 'neg', 'exp', 'neg', 'exp', 'neg']);
    expect(parts.map(({ title }) => title)).toEqual(['layers 0, 2, …, 6', 'layers 1, 3, …, 7']);
  });

  it('have their numbers in few words', () => {
    expect(ranges([4])).toBe('4');
    expect(ranges([0, 1, 2, 5, 8, 9])).toBe('0–2, 5, 8, 9');
  });
});

/** Every op of every layer, as often as there are such layers. */
const opsOf = ({ parts }: Stage, { units }: ExploreSections['passes']): number =>
  parts.reduce((sum, { unit, count }) => sum + count * units[unit]!.ops.filter(({ sign }) => sign !== '-').length, 0);

describe("a model's page", async () => {
  const request = { ...DEMO, cacheTokens: 512 };
  const { passes, kernels } = await collectExplored(request);
  const inspection = await inspectModel(request);
  const recorded = inspection.stages.filter((stage) => functionOf(stage) === 'score');
  const { stages } = passes.functions[0]!;
  const own = kernels.functions[0]!.kernels;

  it('holds every op after every pass, and what the passes changed', () => {
    expect(stages.map(({ name }) => name)).toEqual(recorded.map(({ name }) => name));
    expect(stages.map((stage) => opsOf(stage, passes))).toEqual(recorded.map(stageSize));
    stages.forEach((stage, i) => {
      const before = stages[i - 1];
      if (before?.level === stage.level) expect(before.ops + stage.added - stage.removed, stage.name).toBe(stage.ops);
    });
    const attention = stages.find(({ name }) => name === 'recognizeAttention')!;
    expect([attention.added, attention.removed]).toEqual([16, 8]);
  });

  it('has the function step where there is a cache', () => {
    expect(passes.functions.map(({ name }) => name)).toEqual(['score', 'step']);
    const [, step] = passes.functions;
    expect(step!.stages.map((stage) => opsOf(stage, passes))).toEqual(
      inspection.stages.filter((stage) => functionOf(stage) === 'step').map(stageSize),
    );
    expect(kernels.functions[1]!.size).toMatch(/^T = [\d,]+, .*, paths of up to [\d,]+ tokens$/);
  });

  it('folds layers, and links what they read to the parts that make it', () => {
    expect(stages[0]!.parts.map(({ title }) => title)).toEqual([
      'before the layers',
      'layers 0–7',
      'behind the layers',
    ]);
    for (const { parts } of stages)
      for (const { unit, from } of parts)
        passes.units[unit]!.inputs.forEach(({ kind }, slot) => {
          if (kind === 'value') expect(from[slot]!.length).toBeGreaterThan(0);
          for (const [part, op] of from[slot]!) expect(passes.units[parts[part]!.unit]!.ops[op]).toBeDefined();
        });
  });

  it('has the figures of inspect --kernels', () => {
    const plan = scoreOf(inspection.model.plan);
    const rows = kernelRows(plan, typicalSize(plan.capacity.extents['T']!));
    for (const kernel of own) {
      const row = rows.find(({ name }) => name === kernel.name)!;
      expect([kernel.flops, kernel.bytes, kernel.shape]).toEqual([row.flops, row.bytes, row.shape]);
      expect(kernel.ops.map(({ op }) => op)).toEqual(expect.arrayContaining([...row.ops]));
    }
    expect(own.reduce((sum, { count }) => sum + count, 0)).toBe(rows.length);
  });

  it('says of the ops of the last graph which kernel computes them', () => {
    const last = stages.findLast(({ level }) => level === 'graph')!;
    const part = last.parts.find(({ title }) => title.startsWith('layers'))!;
    const titles = passes.units[part.unit]!.ops.map(({ kernel }) => own[kernel ?? -1]?.title);
    expect(new Set(titles.filter((title) => title?.startsWith('layers.{')))).toEqual(
      new Set(
        ['qkv', 'mix', 'o']
          .map((end) => expect.stringContaining(`attention.${end}`) as string)
          .concat(['gate_up', 'down'].map((end) => expect.stringContaining(`ffn.${end}`) as string)),
      ),
    );
  });

  it('shows sources beside the ops that their lines compute', () => {
    const gateUp = own.find(({ title }) => title.endsWith('ffn.gate_up'))!;
    const lines = gateUp.source.flatMap((at) => kernels.texts[at]!.split('\n'));
    const exp = gateUp.ops.findIndex(({ op }) => op === 'exp');
    const [first] = gateUp.spans.find(([, , ops]) => ops.includes(exp))!;
    expect(lines[first]).toContain('tw_exp(');
    expect(lines.some((line) => line.includes('\u0001'))).toBe(false);
  });
});

describe('kernels of a GPU', () => {
  it('have the unit as their source, each header folded once, and lines of ops in the unit', async () => {
    const { isa: _, ...request } = DEMO;
    const { kernels } = await collectExplored({ ...request, target: 'cuda:sm_80' });
    const own = kernels.functions[0]!.kernels;
    for (const { source, headers } of own) {
      const text = source.map((at) => kernels.texts[at]!).join('\n');
      expect(headers.map(([name]) => name)).toEqual(
        cudaHeadersOf(text)
          .map(({ name }) => name)
          .reverse(),
      );
      for (const [name, at] of headers)
        expect(kernels.texts[at]).toBe(cudaHeadersOf(`#include "${name}"\n`).at(-1)!.text);
    }
    const gateUp = own.find(({ title }) => title.endsWith('ffn.gate_up'))!;
    const exp = gateUp.ops.findIndex(({ op }) => op === 'exp');
    expect(gateUp.spans.some(([, , ops]) => ops.includes(exp))).toBe(true);
    expect(new Set(kernels.texts).size).toBe(kernels.texts.length);
  });
});

describe('a model of 60 layers', () => {
  thorough('is a page of less than 3 MB, each kind of layer once', async () => {
    const output = join(folder, 'large.html');
    const { functions } = await explore({ ...LARGE, output });
    expect(functions).toMatchObject([{ name: 'score', kernels: 304 }]);
    expect(statSync(output).size).toBeLessThan(3e6);
  });

  it('is not asked for registers where no compiler tells them', async () => {
    await expect(collectExplored({ ...DEMO, examines: true })).rejects.toThrow('their registers cannot be asked for');
  });

  it('is not asked for calls that are too large for it', async () => {
    await expect(collectExplored({ ...DEMO, tokens: 60_000 })).rejects.toThrow('this model takes 1024 at most');
  });
});
