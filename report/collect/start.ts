/** The start of a run from results_*.json or a trace. Files are untrusted: every value has bounds. */
import { z } from 'zod';

const MAX_ENTRIES = 5000;
const MAX_NAME = 200;
const name = z.string().transform((text) => text.slice(0, MAX_NAME));
const seconds = z.number().min(0).max(1e9);
const amount = z.number().min(0).max(1e24);

export const startSchema = z.object({
  seconds,
  criticalPath: z
    .array(z.object({ process: name.nullable(), phase: name.nullable(), begin: seconds, seconds }))
    .max(MAX_ENTRIES),
  phases: z
    .array(
      z
        .object({
          process: name,
          phase: name,
          begin: seconds,
          end: seconds,
          spareSeconds: seconds.exactOptional(),
          bytes: amount.exactOptional(),
          movingSeconds: seconds.exactOptional(),
        })
        .refine(({ begin, end }) => end >= begin),
    )
    .max(MAX_ENTRIES),
});
