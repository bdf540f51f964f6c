/** A start as results and traces keep it, in which nearly everything overlaps. */
import type { StartUp } from '../../report/document/start.js';

/** `own`: the name of a phase that no known one has, which lies on the critical path. */
export const madeStart = (own = 'download'): StartUp => ({
  seconds: 1.1,
  criticalPath: [
    { process: 'command', phase: 'process', begin: 0, seconds: 0.1 },
    { process: 'command', phase: own, begin: 0.1, seconds: 0.2 },
    { process: 'device process', phase: 'weights', begin: 0.3, seconds: 0.59 },
    { process: null, phase: null, begin: 0.89, seconds: 0.06 },
    { process: 'command', phase: 'first micro-batch', begin: 0.95, seconds: 0.15 },
  ],
  phases: [
    { process: 'command', phase: 'process', begin: 0, end: 0.1, spareSeconds: 0 },
    { process: 'device process', phase: 'process', begin: 0.05, end: 0.15, spareSeconds: 0.15 },
    { process: 'command', phase: own, begin: 0.1, end: 0.3, spareSeconds: 0 },
    { process: 'device process', phase: 'kernels', begin: 0.3, end: 0.59, spareSeconds: 0.3 },
    {
      ...{ process: 'device process', phase: 'weights', begin: 0.3, end: 0.89, spareSeconds: 0 },
      ...{ bytes: 16e9, movingSeconds: 0.5 },
    },
    { process: 'command', phase: 'tokenize ahead', begin: 0.4, end: 0.8 },
    { process: 'command', phase: 'first micro-batch', begin: 0.95, end: 1.1, spareSeconds: 0 },
  ],
});
