/** Real measurements of step's kernels: paths and slots are legal, and wrong machine code is found out. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CpuMeasurer } from '../../../autotune/cpu/measure.js';
import type { Measurement } from '../../../autotune/measurement.js';
import { defaultSchedule, emitKernel, kernelSignature } from '../../../codegen/cpu/index.js';
import type { Bucket, CpuIsa, CpuSchedule } from '../../../ir/plan.js';
import { loadAddon } from '../../../runtime/addon.js';
import { readSettings } from '../../../settings.js';
import { isBuilt } from '../../e2e/support.js';
import { quickCc } from '../../support/runFolder.js';
import { kernelAt, stepBucket, stepModule } from '../fixture.js';

const cc = isBuilt ? quickCc() : undefined;
if (cc === undefined) process.stderr.write('SKIPPED: measurements of step: no native addon or no C compiler\n');

describe.skipIf(cc === undefined)('measuring step', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tilewright-measure-step-'));
  const measurers: CpuMeasurer[] = [];
  afterAll(async () => {
    for (const measurer of measurers) {
      await measurer.idle();
      measurer.release();
    }
    rmSync(folder, { recursive: true, force: true });
  });
  const module = stepModule();
  const capacity = stepBucket(64, 64);
  const isa = (): CpuIsa => (loadAddon().cpuInfo().isas.avx2 ? 'avx2' : 'portable');
  const defaultOf = (end: string, bucket: Bucket, of = module): CpuSchedule =>
    defaultSchedule(kernelAt(of, end), of, { isas: [isa()], l1: 32 << 10, l2: 1 << 20 }, bucket);
  let folders = 0;
  const make = (compiler: string): CpuMeasurer => {
    const settings = { ...readSettings(), cacheDir: join(folder, `cache${folders++}`), cc: compiler };
    const measurer = new CpuMeasurer({ isa: isa(), threads: 2, capacity, settings });
    measurers.push(measurer);
    return measurer;
  };
  const measure = async (
    measurer: CpuMeasurer,
    end: string,
    bucket: Bucket,
    others: readonly CpuSchedule[],
    of = module,
  ): Promise<readonly Measurement<CpuSchedule>[]> => {
    const reference = defaultOf(end, bucket, of);
    const all: Measurement<CpuSchedule>[] = [];
    const request = { kernel: kernelAt(of, end), module: of, bucket, reference, schedules: [reference, ...others] };
    for await (const measurement of measurer.measure(request)) all.push(measurement);
    return all;
  };
  /** Another schedule of the same kernel. */
  const other = (schedule: CpuSchedule): CpuSchedule => {
    switch (schedule.kind) {
      case 'gemm':
        return { ...schedule, mr: 2, nr: 16, mb: 8, kc: 32 };
      case 'attention':
        return { ...schedule, queries: 16, keys: 64 };
      case 'loop':
        return { ...schedule, rows: 3 };
      default:
        return schedule satisfies never;
    }
  };
  /** A compiler that changes the text of one schedule's kernels, and of the headers that they include. */
  const corrupting = (end: string, schedule: CpuSchedule, change: string): string => {
    const { symbol } = emitKernel(kernelAt(module, end), module, schedule, capacity.extents);
    const path = join(folder, `cc${folders++}`);
    const texts = `find . -name '*.[ch]'`;
    const script = `#!/bin/sh
for each; do
  case $each in *.c) ;; *) continue ;; esac
  grep -q ${symbol} "$each" || continue
  copy=${path}.$$
  mkdir $copy && tar c $(${texts}) | tar x -C $copy && from=$PWD && cd $copy || exit 1
  sed -n '${change}p' $(${texts}) | grep -q . && touch ${path}.used
  sed -i '${change}' $(${texts})
  ${cc} "$@" && cp "$each.o" "$from"
  exit
done
exec ${cc} "$@"
`;
    writeFileSync(path, script, { mode: 0o755 });
    return path;
  };

  it('finds equal bits under other schedules, for one token, for prompts, and for paths that go on', async () => {
    const measurer = make(cc!);
    const kernels = [
      'prepare',
      'attention.qkv',
      'attention.write',
      'attention.mix',
      'attention.o',
      'head',
      'head.reduce',
    ];
    for (const bucket of [stepBucket(1, 600), stepBucket(40, 16), stepBucket(48, 64, 16)]) {
      for (const end of kernels) {
        const found = await measure(measurer, end, bucket, [other(defaultOf(end, bucket))]);
        expect(found).toHaveLength(2);
        for (const each of found) expect(each, `${end} ${JSON.stringify(bucket)}`).toHaveProperty('seconds');
      }
    }
  });

  it('gives every row the adapter of the first slot', async () => {
    const measurer = make(cc!);
    const adapted = stepModule({ slots: 2, rank: 16 });
    for (const end of ['attention.qkv.shrink', 'attention.qkv', 'ffn.gate_up'])
      for (const bucket of [stepBucket(1, 600), stepBucket(40, 16)]) {
        const found = await measure(measurer, end, bucket, [other(defaultOf(end, bucket, adapted))], adapted);
        expect(found).toHaveLength(2);
        for (const each of found) expect(each, `${end} ${JSON.stringify(bucket)}`).toHaveProperty('seconds');
      }
  });

  it.each([
    ['attention.mix', 's/source\\[n\\] = key\\[at\\]/source[n] = key[at] ^ 1/', 'keys of other rows'],
    ['attention.mix', 's/at <= t->last \\&\\&/at < t->last \\&\\&/', 'its own key left out'],
    ['attention.write', 's/if (\\(r[0-9]*\\) >= 0)/if (\\1 > 0)/', 'a row that is not written'],
  ])('refuses a wrong kernel for %s: %s', async (end, change, _what) => {
    const bucket = stepBucket(24, 40, 16);
    const wrong = other(defaultOf(end, bucket));
    const path = corrupting(end, wrong, change);
    const [right, bad] = await measure(make(path), end, bucket, [wrong]);
    expect(existsSync(`${path}.used`)).toBe(true);
    expect(right).toHaveProperty('seconds');
    expect(bad).toEqual({ schedule: wrong, failure: expect.stringContaining('differs') });
  });

  it('compiles what is known ahead, so that measuring it compiles nothing', async () => {
    const log = join(folder, 'compiled');
    const path = join(folder, 'counting');
    writeFileSync(
      path,
      `#!/bin/sh\nfor each; do case $each in *.c) echo "$each" >> ${log} ;; esac; done\nexec ${cc} "$@"\n`,
      {
        mode: 0o755,
      },
    );
    const measurer = make(path);
    const bucket = stepBucket(8, 40, 16);
    const start = defaultOf('attention.o', bucket);
    const signature = kernelSignature(kernelAt(module, 'attention.o'), module, capacity.extents);
    const chosen = [start, other(start)].map((schedule) => ({ signature, schedule }));
    await measurer.prepare(module, chosen, AbortSignal.abort());
    expect(existsSync(log)).toBe(false);
    await measurer.prepare(module, chosen, new AbortController().signal);
    rmSync(log);
    const found = await measure(measurer, 'attention.o', bucket, [other(start)]);
    expect(found.map((each) => 'seconds' in each)).toEqual([true, true]);
    expect(existsSync(log)).toBe(false);
  });
});
