/** What the test files of one run share with each other but with no other run: caches of compiled kernels. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The folder of the run whose main process is `pid`; test files run in its children. globalSetup.ts creates and removes
 * it.
 */
export const runFolder = (pid: number = process.ppid): string => join(tmpdir(), `tilewright-tests-${pid}`);
