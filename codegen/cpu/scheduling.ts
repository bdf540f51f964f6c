/** Schedules of the CPU target: their encoding, and which ones are legal for a kernel. */
import { z } from 'zod';
import { CPU_ISAS, type CpuSchedule } from '../../ir/plan.js';
import { scheduleExtent as extent, type Scheduling } from '../scheduling.js';
import { defaultSchedule } from './defaults.js';
import { isLegal, type CpuFacts } from './legality.js';

const isa = z.enum(CPU_ISAS);

export const cpuScheduling: Scheduling<CpuSchedule, CpuFacts> = {
  schema: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('gemm'), isa, mr: extent, nr: extent, kc: extent, mb: extent, nb: extent }),
    z.strictObject({ kind: z.literal('attention'), isa, queries: extent, keys: extent }),
    z.strictObject({ kind: z.literal('loop'), isa, rows: extent }),
  ]),
  key: (s) => {
    switch (s.kind) {
      case 'gemm':
        return `${s.isa} ${s.mr}×${s.nr} kc${s.kc} ${s.mb}×${s.nb}`;
      case 'attention':
        return `${s.isa} q${s.queries} k${s.keys}`;
      case 'loop':
        return `${s.isa} r${s.rows}`;
      default:
        return s satisfies never;
    }
  },
  describe: (s) => {
    switch (s.kind) {
      case 'gemm':
        return `${s.isa}, tile ${s.mr}×${s.nr}, k ${s.kc}, item ${s.mb}×${s.nb}`;
      case 'attention':
        return `${s.isa}, ${s.queries} queries × ${s.keys} keys`;
      case 'loop':
        return `${s.isa}, ${s.rows} rows`;
      default:
        return s satisfies never;
    }
  },
  default: defaultSchedule,
  legality: isLegal,
};
