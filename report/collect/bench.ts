/** Comparisons with the vendor's library: the files that `bench:gpu --json` writes. */
import { basename } from 'node:path';
import { z } from 'zod';
import { defined } from '../../system/defined.js';
import { UserError } from '../../errors.js';
import { isRecord, parseJson } from '../../system/json.js';
import { decodeUtf8, readBounded, readRange, withFile } from '../../system/read.js';
import type { Bench } from '../document/tuning.js';
import { shortNames } from './shortNames.js';
import { TUNING_HINT } from './tuningLines.js';

const MAX_BENCH_BYTES = 1 << 26;
const MAX_ROWS = 10_000;
const BEGINNING = 4096;

const text = z.string().transform((all) => all.slice(0, 200));
const seconds = z.number().positive().max(3600);

const schema = z.object({
  device: text,
  library: text,
  model: text,
  kernels: z
    .array(
      z.object({
        kernel: text,
        tokens: z.int().min(0).max(1e9),
        schedule: text,
        seconds: seconds.optional(),
        rival: z.object({ algorithm: text, seconds }).optional(),
        isBest: z.boolean(),
      }),
    )
    .max(MAX_ROWS),
});

/** Whether a file is one object over several lines; records are an object on each line. */
export const isBench = (path: string): boolean =>
  withFile(
    path,
    (fd, size) => /^\s*\{\s*\n\s*"/.test(readRange(fd, 0, Math.min(size, BEGINNING)).toString('latin1')),
    TUNING_HINT,
  );

/** Throws UserError for any other file. */
export function readBench(path: string): Bench {
  const value = parseJson(decodeUtf8(readBounded(path, MAX_BENCH_BYTES, TUNING_HINT), path), path, TUNING_HINT);
  const { data } = schema.safeParse(value);
  if (!isRecord(value) || data === undefined)
    throw new UserError(`${path}: is neither tuning records nor a file of bench:gpu --json`, TUNING_HINT);
  const { device, library, model, kernels } = data;
  return {
    file: basename(path),
    device,
    library,
    model: shortNames([model])[0]!,
    rows: kernels.flatMap(({ isBest, seconds: own, rival, kernel, tokens, schedule }) =>
      isBest && own !== undefined ? [{ kernel, tokens, schedule, seconds: own, ...defined({ rival }) }] : [],
    ),
  };
}
