/** How the next token is chosen: what a request may ask for. */
import { z } from 'zod';
import { UsageError } from '../errors.js';

export const MOST_TEMPERATURE = 100;

/** One schema for the command line, the library and the commands. */
export const samplingFields = {
  /** Divides the logits; 0, the default, takes the most likely token. */
  temperature: z.number().min(0).max(MOST_TEMPERATURE).optional(),
  /** The same seed draws the same tokens, alone or beside others. Default 0. */
  seed: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
};

const samplingSchema = z.strictObject(samplingFields);
export type SamplingOptions = Readonly<z.infer<typeof samplingSchema>>;

/** Options with their defaults. */
export interface Sampling {
  readonly temperature: number;
  readonly seed: bigint;
}

/** Temperatures below this take the most likely token: their reciprocals would leave the range of useful logits. */
const LEAST_TEMPERATURE = 1e-5;

/** Whether the most likely token is taken. */
export const isGreedy = ({ temperature }: Sampling): boolean => temperature < LEAST_TEMPERATURE;

/** Throws UsageError where a value is out of range. */
export function resolveSampling(options: SamplingOptions): Sampling {
  const checked = samplingSchema.safeParse(options);
  if (!checked.success) {
    const [issue] = checked.error.issues;
    throw new UsageError(`sampling: ${issue?.path.join('.') ?? 'options'}: ${issue?.message ?? 'not understood'}`);
  }
  const { temperature = 0, seed = 0 } = checked.data;
  return { temperature, seed: BigInt(seed) };
}
