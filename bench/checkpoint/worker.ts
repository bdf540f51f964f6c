/** A thread of write.ts: workerData is a FillWork; says nothing but what went wrong, by ending with it. */
import { workerData } from 'node:worker_threads';
import { fillBlocks, type FillWork } from './fill.js';

for (const _block of fillBlocks(workerData as FillWork));
