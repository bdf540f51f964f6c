/**
 * Replicas in separate processes that read a checkpoint once, through the real command. The driver is a stand-in that
 * lets processes open each other's memory; everything else is real.
 */
import { mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { together } from '../e2e/children.js';
import { questions, writeCheckpoint, writeData } from '../e2e/smallModel.js';
import { GPU_CAPACITY, isBuilt, success, temporaryFolder, textOf, tilewright } from '../e2e/support.js';

if (!canFakeGpu) process.stderr.write('SKIPPED: weights shared by GPUs through the command: no cc or g++ on PATH\n');

describe.skipIf(!isBuilt || !canFakeGpu)('run --devices 3 --target cuda', () => {
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const model = writeCheckpoint();
  const data = writeData(questions(40));
  let sound: Promise<string> | undefined;

  interface Shared {
    readonly stderr: string;
    readonly samples: string;
    /** The weights of each replica that ended normally. */
    readonly hashes: readonly string[];
    /** Files in the folder that stands for memory of other processes. */
    readonly left: readonly string[];
  }

  async function run(devices: number, faults: readonly string[], ...more: string[]): Promise<Shared> {
    const [out, memory] = [temporaryFolder(), join(temporaryFolder(), 'memory')];
    mkdirSync(memory);
    const { stderr } = success(
      await tilewright(
        [
          'run',
          model,
          '--task',
          'multiple_choice',
          '--data',
          data,
          '--target',
          'cuda',
          '--devices',
          String(devices),
          ...GPU_CAPACITY,
          '--out',
          out,
          '--verbose',
          ...more,
        ],
        {
          env: gpu!.environment('devices=3', `totalBytes=${2 ** 33}`, `ipc=${memory}`, ...faults),
          onProgress: together(),
        },
      ),
    );
    const left = readdirSync(memory);
    const hashes = left.includes('hashes') ? readFileSync(join(memory, 'hashes'), 'utf8').trimEnd().split('\n') : [];
    return { stderr, hashes, left, samples: textOf(out, 'samples') };
  }

  const alone = (): Promise<string> => (sound ??= run(1, []).then(({ samples }) => samples));

  /** Runs with one fault each; several tests use the first. */
  const faulty = new Map<string, Promise<Shared>>();
  const runFaulty = (fault: string): Promise<Shared> => {
    const known = faulty.get(fault) ?? run(3, [fault]);
    faulty.set(fault, known);
    return known;
  };
  const UNOPENED = 'fail:cuIpcOpenMemHandle_v2:217';

  /** The weights of a replica that reads all of them itself. */
  const rightHash = (): Promise<string> =>
    runFaulty(UNOPENED).then(({ hashes }) => {
      expect(hashes).toHaveLength(3);
      expect(new Set(hashes).size).toBe(1);
      return hashes[0]!;
    });

  test('copies what the others read, has the same weights and answers, and leaves no memory behind', async () => {
    const { stderr, samples, hashes, left } = await run(3, []);
    expect(stderr).toMatch(/waited [\d.]+ s for other devices, [\d.]+ GB copied from them/);
    expect(stderr).not.toMatch(/read from files as well/);
    expect(stderr).toMatch(
      new RegExp(
        'seconds since the command: process .*compile .*first micro-batch [\\d.]+–[\\d.]+; ' +
          'devices: process .*kernels .*weights .*programs',
      ),
    );
    expect(samples).toBe(await alone());
    expect(hashes).toEqual(Array.from({ length: 3 }, () => hashes[0]));
    expect(hashes[0]).toBe(await rightHash());
    expect(left).toEqual(['hashes']);
  });

  test.each([
    ['memory cannot be opened', UNOPENED, /the parts of 2 read from files as well: .*217|PEER_ACCESS/],
    ['copies fail', 'fail:cuMemcpyDtoDAsync_v2:1', /the parts of 2 read from files as well: .*INVALID_VALUE/],
    ['memory cannot be shared', 'fail:cuIpcGetMemHandle:801', /the parts of 2 read from files as well: .*801/],
  ])('reads everything from files if %s, says so, and has the same answers', async (_what, fault, said) => {
    const { stderr, samples, hashes } = await runFaulty(fault);
    expect(stderr).toMatch(said);
    expect(samples).toBe(await alone());
    for (const hash of hashes) expect(hash).toBe(await rightHash());
  });

  test('continues without a replica whose device is lost while it loads; the others read its part', async () => {
    const { stderr, samples, hashes } = await run(3, [
      'fail:cuMemcpyHtoDAsync_v2:700:2',
      `once=${join(temporaryFolder(), 'once')}`,
    ]);
    expect(stderr).toMatch(/left out, the run goes on with 2 of 3/);
    expect(stderr).toMatch(/the parts of 1 read from files as well: (its process ended|it failed)/);
    expect(samples).toBe(await alone());
    for (const hash of hashes) expect(hash).toBe(await rightHash());
  });

  test('generates random weights on every device without asking another', async () => {
    const { stderr, hashes } = await run(3, [], '--init', 'random:1');
    expect(stderr).not.toMatch(/other devices/);
    expect(hashes).toEqual([]);
  });
});
