/** Faults in native code: pool threads do not hide them, and a truncated file is named. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FORMATS } from '../../ir/storage.js';
import { loadAddon } from '../../runtime/addon.js';
import { temporaryFolder } from './kernels.js';

const ADDON = join(process.cwd(), 'build', 'Release', 'tilewright.node');
const BYTES = 1 << 20;

/** Numbers of the signals that a thread of this process blocks. */
function blockedBy(task: string): number[] {
  const mask = BigInt(
    `0x${/^SigBlk:\s*([0-9a-f]+)/m.exec(readFileSync(`/proc/self/task/${task}/status`, 'utf8'))![1]!}`,
  );
  return Array.from({ length: 64 }, (_, i) => i + 1).filter((signal) => (mask & (1n << BigInt(signal - 1))) !== 0n);
}

describe('a fault', () => {
  it('of a pool thread is not blocked, as other signals are', async () => {
    const pool = new (loadAddon().Pool)(3);
    const named = (): string[] =>
      readdirSync('/proc/self/task').filter(
        (task) => readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim() === 'tilewright',
      );
    // The first thing that a thread does is to name itself.
    await expect.poll(() => named().length).toBeGreaterThanOrEqual(3);
    const threads = named();
    for (const thread of threads) {
      const blocked = blockedBy(thread);
      // SIGINT, SIGTERM and SIGWINCH; SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
      expect(blocked).toEqual(expect.arrayContaining([2, 15, 28]));
      expect(blocked.filter((signal) => [4, 5, 6, 7, 8, 11, 31].includes(signal))).toEqual([]);
    }
    pool.release();
  });

  const folder = join(temporaryFolder(), 'a model');
  mkdirSync(folder);
  const file = join(folder, 'weights.safetensors');

  /** Source of a process that maps a file, half of which is gone by the time that `read` is executed. */
  function cutOff(read: string): { signal: NodeJS.Signals | null; stderr: string } {
    writeFileSync(file, new Uint8Array(BYTES));
    const program = `
      const addon = require(${JSON.stringify(ADDON)});
      const other = new addon.Memory(${JSON.stringify(ADDON)});
      other.release();
      const memory = new addon.Memory(${JSON.stringify(file)});
      require('node:fs').truncateSync(${JSON.stringify(file)}, ${BYTES / 2});
      ${read}`;
    const { signal, stderr } = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' });
    return { signal, stderr };
  }

  it('in a truncated file names the file and the place, and ends the process as it would otherwise', () => {
    const { signal, stderr } = cutOff(`memory.read(${BYTES - 4096}, 16);`);
    expect(signal).toBe('SIGBUS');
    expect(stderr).toContain(
      `tilewright: ${file} was cut off while it was read: byte ${BYTES - 4096} is there no more`,
    );
    expect(stderr.match(/was cut off/g)).toHaveLength(1);
  });

  it('in a truncated file is reported once, however many pool threads read it', () => {
    const { signal, stderr } = cutOff(`
      const pool = new addon.Pool(4);
      const rows = ${BYTES / 4 / 16};
      const target = { memory: new addon.Memory(${BYTES}), offset: 0, bytes: ${BYTES} };
      const format = ${FORMATS.f32.code}, rowMap = Int32Array.from({ length: rows }, (_, i) => i);
      addon.pack(pool, { layout: 'panels', format, k: 16, rowMap, target,
        sources: [{ kind: 'memory', format, rows, memory, offset: 0 }] });`);
    expect(signal).toBe('SIGBUS');
    expect(stderr).toContain(`${file} was cut off while it was read`);
    expect(stderr.match(/was cut off/g)).toHaveLength(1);
  });

  it('elsewhere mentions no files', () => {
    writeFileSync(file, new Uint8Array(BYTES));
    const { signal, stderr } = cutOff(
      `memory.release(); process.kill(process.pid, 'SIGBUS'); setTimeout(() => {}, 100_000);`,
    );
    expect(signal).toBe('SIGBUS');
    expect(stderr).not.toContain('cut off');
  });
});
