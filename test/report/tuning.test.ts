/** Tuning records as data of a page: what was recorded, in order, beside the default and the vendor's library. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { collectMeasurements } from '../../report/collect/collectReport.js';
import { collectTuning } from '../../report/collect/tuning.js';
import { gainOf, progressOf, trialsOf } from '../../report/document/tuning.js';
import { finalLine, jobLine, peaksLine, rivalLine, trialLine } from '../support/traces.js';

const root = mkdtempSync(join(tmpdir(), 'tilewright-tuning-page-'));
afterAll(() => rmSync(root, { recursive: true }));
let files = 0;
const write = (lines: readonly unknown[], name = `r${files++}.jsonl`): string => {
  const path = join(root, name);
  writeFileSync(path, lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'));
  return path;
};
const machineOf = (lines: readonly unknown[]) => collectTuning([write(lines)]).document.machines[0]!;

describe('tuning records', () => {
  const lines = [
    peaksLine(),
    jobLine('aaaaaaaa', 1024),
    trialLine('aaaaaaaa', 1024, 64, [0.004], 0),
    trialLine('aaaaaaaa', 1024, 128, [0.003, 0.002, 0.009], 10),
    trialLine('aaaaaaaa', 1024, 256, [], 20),
    trialLine('aaaaaaaa', 1024, 192, [0.0025], 30),
  ];

  it('give trials in their order, with the best so far', () => {
    const machine = machineOf(lines);
    expect(machine.name).toBe('NVIDIA Made/132, sm_90a');
    expect(trialsOf(machine, 0).map(({ at, seconds, best }) => [at, seconds, best])).toEqual([
      [0, 0.004, 0.004],
      [10, 0.003, 0.003],
      [20, null, 0.003],
      [30, 0.0025, 0.0025],
    ]);
    expect(machine.failures).toEqual([{ reason: 'its result differs', count: 1 }]);
  });

  it('are compared with the default, the peaks and the vendor', () => {
    const [job] = machineOf([...lines, rivalLine()]).jobs;
    expect(job).toMatchObject({
      ...{ kernel: 'layers.0.ffn.down', isNamed: true, bucket: '1,024 T', count: 60, trials: 4, failures: 1 },
      standard: { schedule: 'gemm tile 64', seconds: 0.004 },
      best: { schedule: 'gemm tile 192', seconds: 0.0025 },
      rival: { library: 'cuBLASLt 13.0', algorithm: 'nvjet', seconds: 0.0024, source: 'tuning records' },
    });
    // 10¹² FLOPs at 10¹⁵ a second are 1 ms.
    expect(job!.shareOfPeak).toBeCloseTo(0.4, 9);
    expect(gainOf(job!)).toBeCloseTo(1.6, 9);
  });

  it('let a final decide, where one was held', () => {
    const won = machineOf([...lines, finalLine('aaaaaaaa', 1024, [64, 0.004], [128, 0.00399], 0.001)]).jobs[0]!;
    expect(won.final).toEqual({ schedule: 'gemm tile 64', seconds: 0.004, isDefault: true });
    expect(gainOf(won)).toBe(1);
  });

  it('of versions that named no kernels are shown by their keys', () => {
    const machine = machineOf(lines.filter((line) => !('job' in line) && !('peaks' in line)));
    expect(machine.jobs[0]).toMatchObject({ kernel: 'gemm aaaaaaaa', isNamed: false, count: 1, trials: 4 });
    expect(machine.jobs[0]).not.toHaveProperty('standard');
    expect(machine.jobs[0]).not.toHaveProperty('rival');
  });

  it('tell how the time of the largest calls fell', () => {
    const machine = machineOf([...lines, jobLine('bbbbbbbb', 1024, 1), trialLine('bbbbbbbb', 1024, 64, [0.06], 40)]);
    expect(progressOf(machine).map(({ share }) => share.toFixed(3))).toEqual([
      '1.000',
      '0.800',
      '0.800',
      '0.700',
      '0.700',
    ]);
  });
});

describe('files', () => {
  it('with damaged and foreign lines are read as far as they go', () => {
    const path = write([
      ...['{', '[]', '7', '{"version":1}', '{"__proto__":{"polluted":1}}', `{"key":"${'x'.repeat(20_000)}"}`],
      trialLine('aaaaaaaa', 64, 64, [0.1], 0),
      { ...trialLine('aaaaaaaa', 64, 64, [0.1], 0), seconds: ['fast'] },
    ]);
    const { document, notes } = collectTuning([path]);
    expect(document.machines[0]!.trials.at).toHaveLength(1);
    expect(notes).toEqual([`${path}: 7 lines left out: damaged, or no record`]);
    expect({}).not.toHaveProperty('polluted');
  });

  it('leaves out lines that nest too deeply to sort', () => {
    const line = JSON.stringify({ ...trialLine('aaaaaaaa', 64, 64, [0.1], 0), schedule: { kind: 'DEEP' } });
    const deep = line.replace('"DEEP"', '['.repeat(7000) + ']'.repeat(7000));
    const path = write([trialLine('aaaaaaaa', 64, 64, [0.1], 0), deep]);
    expect(collectTuning([path]).notes).toEqual([`${path}: 1 line left out: damaged, or no record`]);
  });

  it('that are no records are refused with one line', () => {
    expect(() => collectTuning([write(['hello'])])).toThrow('has no record of the tuner');
    expect(() => collectTuning([write(['{\n "kernels": 3 }'])])).toThrow('neither tuning records nor a file of bench');
    expect(() => collectTuning([join(root, 'missing.jsonl')])).toThrow('no such file');
  });

  it('of bench:gpu are shown as they are', () => {
    const rival = { algorithm: 'nvjet', seconds: 0.002, teraflops: 1 };
    const row = { kernel: 'ffn.down', tokens: 8192, origin: 'o', schedule: 's', seconds: 0.0021, isBest: true, rival };
    const bench = { device: 'H', library: 'cuBLASLt', model: 'm', kernels: [row, { ...row, isBest: false }] };
    const { document } = collectTuning([write([JSON.stringify(bench, undefined, 1)], 'bench.json')]);
    expect(document.benches[0]!.rows).toEqual([
      {
        ...{ kernel: 'ffn.down', tokens: 8192, schedule: 's', seconds: 0.0021 },
        rival: { algorithm: 'nvjet', seconds: 0.002 },
      },
    ]);
  });

  it('that lie in the folder of a run are found by their names', () => {
    write([trialLine('aaaaaaaa', 64, 64, [0.1], 0)], 'tuning.jsonl');
    expect(collectMeasurements({}, [root]).blocks.map(({ name }) => name)).toEqual(['tuning']);
    expect(collectMeasurements({}, []).blocks).toEqual([]);
    expect(() => collectMeasurements({ traces: [root] }, [])).toThrow('holds nothing of that kind');
  });
});
