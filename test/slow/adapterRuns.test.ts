/**
 * Runs with an adapter by the command: what names them, from a checkpoint and from artifacts, on several devices, and
 * computed again.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { questions, writeCheckpoint, writeData } from '../e2e/smallModel.js';
import { midst } from '../e2e/children.js';
import { filesOf, isBuilt, success, temporaryFolder, tilewright } from '../e2e/support.js';
import { writeAdapter } from '../support/writtenAdapters.js';

const PLACE = ['--target', 'cpu', '--precision', 'f32', '--threads', '2', '--batch-tokens', '128'];

describe.skipIf(!isBuilt)('a run with an adapter', () => {
  const folder = temporaryFolder();
  const [one, other] = [join(folder, 'one'), join(folder, 'other')];
  let [model, data, adapted] = ['', '', ''];
  const asked = (out: string, ...more: string[]): string[] => {
    const own = more[0]?.endsWith('.tw') === true ? [] : PLACE;
    const [from = model, ...rest] = own.length === 0 ? more : [model, ...more];
    return ['run', from, '--task', 'multiple_choice', '--data', data, ...own, '--out', join(folder, out), ...rest];
  };
  const samplesOf = (out: string): string => {
    const [path] = filesOf(join(folder, out), 'samples');
    return readFileSync(path!, 'utf8');
  };

  beforeAll(async () => {
    model = writeCheckpoint();
    data = writeData(questions(12));
    writeAdapter({ seed: 1, dir: one });
    writeAdapter({ seed: 2, dir: other });
    success(await tilewright(asked('base')));
    success(await tilewright(asked('adapted', '--adapter', one)));
    // Later runs write into the folder as well.
    adapted = samplesOf('adapted');
  });

  it('answers otherwise than the base, and the same on several devices', async () => {
    expect(adapted).not.toBe(samplesOf('base'));
    success(await tilewright(asked('pool', '--adapter', one, '--parallel', 'dp=2')));
    expect(samplesOf('pool')).toBe(adapted);
  });

  it('ends as if nothing had happened where a process with the adapter is killed and replaced', async () => {
    const many = writeData(questions(800));
    const all = (out: string, ...more: string[]): string[] => asked(out, '--adapter', one, '--data', many, ...more);
    success(await tilewright(all('whole')));
    const { stderr } = success(
      await tilewright(all('killed', '--devices', '2'), {
        onProgress: midst(2, (pids) => process.kill(pids[1]!, 'SIGKILL')),
      }),
    );
    expect(stderr).toMatch(/device 1: the device process ended \(SIGKILL\): another one takes over/);
    expect(samplesOf('killed')).toBe(samplesOf('whole'));
    success(await tilewright(asked('unadapted', '--data', many)));
    expect(samplesOf('unadapted')).not.toBe(samplesOf('whole'));
  });

  it('is verified with its adapter, and not with another in its folder', async () => {
    success(await tilewright(['verify', join(folder, 'adapted'), '--sample', 'all', '--threads', '2']));
    const moved = join(folder, 'moved');
    writeAdapter({ seed: 1, dir: moved });
    success(await tilewright(asked('kept', '--adapter', `one=${moved}`)));
    writeAdapter({ seed: 2, dir: moved });
    expect(await tilewright(['verify', join(folder, 'kept'), '--sample', 'all', '--threads', '2'])).toMatchObject({
      status: 3,
    });
  });

  it('goes on with its own answers alone', async () => {
    const again = await tilewright(asked('adapted', '--adapter', one, '--resume'));
    success(again);
    expect(again.stderr).toContain('12 questions taken over');
    const strange = await tilewright(asked('adapted', '--adapter', other, '--resume'));
    expect(strange.stderr).not.toContain('questions taken over');
  });

  it('runs from an artifact with slots, and is refused without, with the command', async () => {
    const [plain, slotted] = ['plain.tw', 'slotted.tw'].map((name) => join(folder, name)) as [string, string];
    success(await tilewright(['compile', model, ...PLACE.slice(0, 4), '--batch-tokens', '128', '-o', plain]));
    const refused = await tilewright(asked('refused', plain, '--adapter', one));
    expect(refused).toMatchObject({ status: 1, stderr: expect.stringContaining('without slots for adapters') });
    expect(refused.stderr).toMatch(/tilewright compile .*--adapter-slots 1 --adapter-rank 16 -o .*plain\.tw/);
    const room = ['--adapter-slots', '2', '--adapter-rank', '16'];
    success(
      await tilewright(['compile', model, ...PLACE.slice(0, 4), '--batch-tokens', '128', ...room, '-o', slotted]),
    );
    success(await tilewright(asked('artifact', slotted, '--adapter', one)));
    expect(samplesOf('artifact')).toBe(adapted);
    // Slots that nothing is written to change no bit.
    success(await tilewright(asked('unused', slotted)));
    expect(samplesOf('unused')).toBe(samplesOf('base'));
    const wide = join(folder, 'wide');
    writeAdapter({ seed: 5, rank: 20, dir: wide });
    expect((await tilewright(asked('wide', slotted, '--adapter', wide))).stderr).toContain('rank 32 is needed');
  });
});
