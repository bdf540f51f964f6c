/** A thread of write.ts: workerData is a FillWork. It sends nothing, and ends with an error if something went wrong. */
import { workerData } from 'node:worker_threads';
import { fillBlocks, type FillWork } from './fill.js';

for (const _block of fillBlocks(workerData as FillWork));
