/** What may be asked of a continuation: one schema for the command line, the library and the commands. */
import { z } from 'zod';
import { samplingFields } from './sampling.js';

export const DEFAULT_NEW_TOKENS = 128;
/** Beyond any context of today's models. */
export const MOST_NEW_TOKENS = 1 << 20;
const MOST_STOPS = 64;
const MOST_STOP_CHARACTERS = 1000;

export const generateFields = {
  /** Most tokens to generate. */
  maxNewTokens: z.number().int().min(1).max(MOST_NEW_TOKENS).optional(),
  /** Texts that end what is generated; they are not part of it. */
  stop: z.array(z.string().min(1).max(MOST_STOP_CHARACTERS)).max(MOST_STOPS).readonly().optional(),
  /** Goes on after the model's end-of-text token. */
  ignoreEos: z.boolean().optional(),
  ...samplingFields,
};

export const generateSchema = z.strictObject(generateFields);
export type GenerateOptions = Readonly<z.infer<typeof generateSchema>>;
