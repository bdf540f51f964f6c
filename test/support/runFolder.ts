/** The folder of one run of all tests: caches of compiled kernels, which test files share, and temporary folders. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * The folder of the run whose main process is `pid`; test files run in its children. globalSetup.ts creates and removes
 * it.
 */
export const runFolder = (pid: number = process.ppid): string => join(tmpdir(), `tilewright-tests-${pid}`);
