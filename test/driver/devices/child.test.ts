/** The process of a device, from dist/, when its parent is gone. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';

const CHILD = join(import.meta.dirname, '../../../dist/driver/devices/child.js');

/**
 * Starts the device process, stops it once it answers, leaves it a call to answer, and dies. A call before the model is
 * loaded is answered at once.
 */
const PARENT = `
  const child = require('node:child_process').fork(${JSON.stringify(CHILD)}, { stdio: ['ignore', 'ignore', 2, 'ipc'] });
  const call = { kind: 'ask', model: 0, id: 1, asked: { kind: 'call', question: { function: 'score', inputs: {} } } };
  child.send(call);
  child.once('message', () => {
    child.kill('SIGSTOP');
    process.stdout.write(String(child.pid));
    process.stdin.once('data', () => child.send(call, () => process.kill(process.pid, 'SIGKILL')));
  });`;

const isStopped = (pid: number): boolean => /\) T /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));

it('a device process whose parent was killed ends without a word, also if it has an answer to send', async () => {
  const parent = spawn(process.execPath, ['-e', PARENT], { stdio: 'pipe' });
  const stderr = text(parent.stderr);
  const [pid] = ((await once(parent.stdout, 'data')) as [Buffer]).map(Number);
  try {
    await expect.poll(() => isStopped(pid!)).toBe(true);
    const exit = once(parent, 'exit');
    parent.stdin.write('go');
    expect(await exit).toEqual([null, 'SIGKILL']);
  } finally {
    process.kill(pid!, 'SIGCONT');
  }
  // The process holds this stream until it ends.
  expect(await stderr).toBe('');
});
