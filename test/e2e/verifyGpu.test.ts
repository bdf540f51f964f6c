/** Results of a GPU, whose driver is a stand-in: verified on that kind of device, and on a CPU. */
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Verification } from '../../evaluate/verify/verification.js';
import { canFakeGpu, FakeGpu } from '../support/fakeCuda/fakeGpu.js';
import { questions, writeCheckpoint, writeData } from './smallModel.js';
import { GPU_CAPACITY, isBuilt, type Outcome, success, temporaryFolder, tilewright } from './support.js';

describe.skipIf(!isBuilt || !canFakeGpu)('results of a GPU', () => {
  const gpu = canFakeGpu ? new FakeGpu(temporaryFolder()) : undefined;
  const out = join(temporaryFolder(), 'results');
  const [model, data] = [writeCheckpoint(), writeData(questions(20))];
  const onGpu = (args: readonly string[]): Promise<Outcome> =>
    tilewright(args, { env: gpu!.environment(`totalBytes=${2 ** 31}`) });
  const said = ({ stdout }: Outcome): Verification => JSON.parse(stdout) as Verification;

  beforeAll(async () => {
    const asked = ['--task', 'multiple_choice', '--data', data, '--target', 'cuda', ...GPU_CAPACITY];
    success(await onGpu(['run', model, ...asked, '--out', out]));
  });

  it('are computed again on a GPU, if one is here', async () => {
    const { devices, checks } = said(await onGpu(['verify', out, '--sample', 'all', '--json']));
    expect(devices).toMatchObject({ isSameKind: true, recorded: { target: 'cuda' }, here: { target: 'cuda' } });
    expect(devices.here).toEqual(devices.recorded);
    expect(checks).toMatchObject({ model: { differing: 0 }, settings: { differing: 0 }, data: { differing: 0 } });
  });

  it('are computed on a CPU, if none is here: differences are shown, and bits cannot be expected', async () => {
    const outcome = await tilewright(['verify', out, '--sample', 'all', '--json', '--threads', '2']);
    expect(outcome.status, outcome.stderr).toBe(4);
    const { devices, verdict, answers } = said(outcome);
    expect(devices).toMatchObject({ isSameKind: false, here: { target: 'cpu' } });
    expect(verdict).toMatch(/^CANNOT BE CHECKED to the bit: made on cuda:sm_/);
    expect(answers.logLikelihoods.maxDifference).toBeGreaterThan(0);
  });
});
