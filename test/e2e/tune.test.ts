/**
 * Real tuning of the demo model: it keeps to its budget, shows its progress, and stops when told to. How the budget is
 * divided is tested on a clock of its own in driver/tuneWithin.test.ts.
 */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, test } from 'vitest';
import { CPU_RECORDS, cpuTarget } from '../../autotune/cpu/tune.js';
import { TuningDatabase } from '../../autotune/database.js';
import { loadArtifact } from '../../driver/artifact/load.js';
import { type CpuDevice, detectMachine } from '../../driver/targets/cpuDevice.js';
import { type CpuGemmSchedule, type CpuSchedule, type LinkedFunction, scoreOf } from '../../ir/plan.js';
import { isThorough, thorough } from '../support/thorough.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { CAPACITY, isBuilt, type Outcome, ROOT, start, success, temporaryFolder, tilewright } from './support.js';

/** Writes a database in which the first product of an artifact has a better schedule than its default. */
async function writeBetter(artifact: string, path: string): Promise<void> {
  const machine = detectMachine();
  const { model } = await loadArtifact(artifact, machine);
  const { isa } = model.device as CpuDevice;
  const plan = scoreOf(model.plan) as LinkedFunction<CpuSchedule>;
  const { signature } = plan.launches.find(({ kernel }) => kernel.endsWith('qkv'))!;
  const database = TuningDatabase.open(path, CPU_RECORDS);
  const records = database.recordsFor(await cpuTarget(isa, 2));
  for (const [i, bucket] of plan.buckets.entries()) {
    const start = plan.schedules[i]![signature] as CpuGemmSchedule;
    records.append(signature, bucket, start, [2]);
    records.append(signature, bucket, { ...start, kc: start.kc / 2 }, [1]);
  }
  database.close();
}

describe.skipIf(!isBuilt)('tune', () => {
  const artifact = join(temporaryFolder(), 'demo.tw');
  const database = join(temporaryFolder(), 'tuning.jsonl');

  beforeAll(async () => {
    // In CI, a model whose kernels other tests have.
    const model = isThorough ? join(ROOT, 'models/demo') : writeCheckpoint();
    success(
      await tilewright(['compile', model, '-o', artifact, ...(isThorough ? ['--batch-tokens', '64'] : CAPACITY)]),
    );
  });

  /** Whether a host without a compiler can run the artifact. */
  const runsBare = async (own: string): Promise<Outcome> => {
    const bare = temporaryFolder();
    const data = isThorough ? join(ROOT, 'examples/everyday.jsonl') : writeData(questions(2));
    const task = isThorough ? 'hellaswag' : 'multiple_choice';
    const flags = ['--task', task, '--data', data, '--limit', '2', '--trust-code'];
    return tilewright(['run', own, ...flags], { env: { PATH: bare, TILEWRIGHT_CACHE: join(bare, 'cache') } });
  };

  test('shows no share of the peak above 100 %, and the artifact stays complete', async () => {
    const { stdout } = success(
      await tilewright(['tune', artifact, '--budget', '2s', '--threads', '2', '--database', database, '--json']),
    );
    const { table, isSaved } = JSON.parse(stdout) as { readonly table: readonly string[]; readonly isSaved: boolean };
    expect(isSaved).toBe(true);
    for (const share of table.join('\n').matchAll(/(\d+) %/g)) expect(Number(share[1])).toBeLessThanOrEqual(100);
    success(await tilewright(['inspect', artifact]));
    success(await runsBare(artifact));
  });

  thorough('takes the schedules that were found, with their code', async () => {
    const folder = temporaryFolder();
    const own = join(folder, 'own.tw');
    cpSync(artifact, own, { recursive: true });
    const before = readFileSync(join(own, 'kernels', 'kernels.so'));
    await writeBetter(own, join(folder, 'better.jsonl'));
    const flags = ['--budget', '10s', '--threads', '2', '--database', join(folder, 'better.jsonl'), '--json'];
    const { stdout } = success(await tilewright(['tune', own, ...flags]));
    expect(JSON.parse(stdout)).toMatchObject({ isSaved: true });
    expect(readFileSync(join(own, 'kernels', 'kernels.so')).equals(before)).toBe(false);
    success(await runsBare(own));
  });

  thorough('waits for no compiler beyond its budget, and then keeps old schedules with their code', async () => {
    const folder = temporaryFolder();
    const cc = join(folder, 'slow-cc');
    writeFileSync(
      cc,
      '#!/bin/sh\ncase "$*" in *.c*) case "$*" in *trial*) ;; *) exec sleep 100000 ;; esac ;; esac\nexec cc "$@"\n',
      {
        mode: 0o755,
      },
    );
    const own = join(folder, 'own.tw');
    success(
      await tilewright(['compile', join(ROOT, 'models/demo'), '-o', own, '--batch-tokens', '64', '--pack-weights']),
    );
    const before = readFileSync(join(own, 'manifest.json'), 'utf8');
    expect(before).toContain('kernels.so');
    const env = { TILEWRIGHT_CC: cc, TILEWRIGHT_CACHE: join(folder, 'cache') };
    const flags = ['--budget', '1s', '--threads', '2', '--database', join(folder, 'better.jsonl'), '--json'];
    await writeBetter(own, join(folder, 'better.jsonl'));
    const { stdout } = success(await tilewright(['tune', own, ...flags], { env }));
    // These compilers never end.
    expect(JSON.parse(stdout)).toMatchObject({ isSaved: false });
    expect(readFileSync(join(own, 'manifest.json'), 'utf8')).toBe(before);
    success(await runsBare(own));
  });

  thorough('stops at once at Ctrl-C while compilers run, and leaves the artifact whole', async () => {
    const running = start(['tune', artifact, '--budget', '5m', '--threads', '2', '--database', database]);
    while (!running.stderr().includes('tune: ')) await sleep(20);
    await sleep(1500);
    running.process.kill('SIGINT');
    const { status, stderr } = await running.ended;
    expect(status).toBe(130);
    expect(stderr).toContain('go on with');
    success(await tilewright(['inspect', artifact]));
    success(await runsBare(artifact));
  });
});
