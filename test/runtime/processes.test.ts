/** Programs that run to their end, or are ended together with those that they have started. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it } from 'vitest';
import { runProcess } from '../../runtime/compilers.js';
import { isRunning } from '../../system/process.js';

const folder = mkdtempSync(join(tmpdir(), 'tilewright-processes-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("a program's status and output are returned", async () => {
  expect(await runProcess('sh', ['-c', 'echo out; echo err >&2; exit 3'])).toEqual({
    status: 3,
    stdout: 'out\n',
    stderr: 'err\n',
  });
  expect(await runProcess('/no/such/program', [])).toMatchObject({
    status: -1,
    stderr: expect.stringMatching(/ENOENT/),
  });
});

it('a program is ended at once, with those that it has started, as compilers do', async () => {
  const file = join(folder, 'pid');
  const stop = new AbortController();
  const running = runProcess('sh', ['-c', `sleep 900 & echo $! > ${file}; wait`], folder, stop.signal);
  while (!existsSync(file) || readFileSync(file, 'utf8') === '') await sleep(10);
  const child = Number(readFileSync(file, 'utf8'));
  expect(isRunning(child)).toBe(true);
  stop.abort();
  expect(await running).toMatchObject({ status: -1, stderr: expect.stringContaining('SIGKILL') });
  // The process that adopts it may take a moment to notice.
  await expect.poll(() => !isRunning(child) || isZombie(child)).toBe(true);
});

/** Ended, and not yet waited for by the process that adopted it. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return true;
  }
}

it('nothing is started if the signal was aborted before', async () => {
  const file = join(folder, 'never');
  const result = await runProcess('touch', [file], folder, AbortSignal.abort());
  expect(result.status).toBe(-1);
  expect(existsSync(file)).toBe(false);
});
