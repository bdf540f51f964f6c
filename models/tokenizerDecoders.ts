/** The decoder of a tokenizer.json: how the pieces of tokens become text again. Known components with bounds. */
import { z } from 'zod';
import { isGiven, isRecord } from '../system/json.js';

const MAX_DECODERS = 16;
const short = z.string().min(1).max(256);
const count = z.int().min(0).max(256);
const flag = z.boolean().optional();

const decoder = z.discriminatedUnion('type', [
  z.object({ type: z.literal('ByteFallback') }),
  z.object({ type: z.literal('Fuse') }),
  z.object({ type: z.literal('ByteLevel'), add_prefix_space: flag, trim_offsets: flag, use_regex: flag }),
  z.object({ type: z.literal('Strip'), content: short, start: count, stop: count }),
  z.object({ type: z.literal('Replace'), pattern: z.strictObject({ String: short }), content: z.string().max(256) }),
  z.object({ type: z.literal('WordPiece'), prefix: short, cleanup: z.boolean() }),
  z.object({ type: z.literal('BPEDecoder'), suffix: short }),
  z.object({
    type: z.literal('Metaspace'),
    replacement: z.string().refine((text) => [...text].length === 1, 'expected one character'),
    add_prefix_space: flag,
    prepend_scheme: z.enum(['always', 'never', 'first']).optional(),
    split: flag,
  }),
]);

/** A checked decoder, ready to be written into a tokenizer.json. */
export type Decoder = z.infer<typeof decoder>;

/**
 * The components of `value`, a decoder as a tokenizer.json has it; undefined where one is not known or out of bounds.
 * Encoding needs no decoder, so that is no fault of the file.
 */
export function parseDecoders(value: unknown): readonly Decoder[] | undefined {
  if (!isGiven(value)) return [];
  const members: unknown = isRecord(value) && value['type'] === 'Sequence' ? value['decoders'] : [value];
  if (!Array.isArray(members) || members.length > MAX_DECODERS) return undefined;
  const parsed = members.map((member: unknown) => decoder.safeParse(member));
  return parsed.every(({ success }) => success) ? parsed.map(({ data }) => data!) : undefined;
}

export const writeDecoders = (decoders: readonly Decoder[] | undefined): unknown =>
  decoders === undefined || decoders.length === 0 ? null : { type: 'Sequence', decoders };
