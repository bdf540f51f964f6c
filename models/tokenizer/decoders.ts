/**
 * The decoder of a tokenizer.json, which makes text of the pieces of tokens: known components with bounds, and a stage
 * for each that takes pieces as they come. What the stages give for a list of pieces is what the tokenizer library
 * gives for it.
 */
import { z } from 'zod';
import { isGiven, isRecord } from '../../system/json.js';
import { ByteFallback, ByteLevel } from './byteStages.js';
import { CLEANUP, EndOfWord, Fuse, Metaspace, Replace, Spaces, type Stage, Strip, WordPiece } from './pieceStages.js';
import { short } from './vocabulary.js';

const MAX_DECODERS = 16;
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
export const decoderList = z.array(decoder).max(MAX_DECODERS);

/** A checked decoder, ready to be written into a tokenizer.json. */
export type Decoder = z.infer<typeof decoder>;

/**
 * The components of `value`, a decoder as a tokenizer.json has it; undefined where one is not known or out of bounds.
 * Encoding needs no decoder, so that is no fault of the file.
 */
export function parseDecoders(value: unknown): readonly Decoder[] | undefined {
  if (!isGiven(value)) return [];
  const members: unknown = isRecord(value) && value['type'] === 'Sequence' ? value['decoders'] : [value];
  return decoderList.safeParse(members).data;
}

export const writeDecoders = (decoders: readonly Decoder[] | undefined): unknown =>
  decoders === undefined || decoders.length === 0 ? null : { type: 'Sequence', decoders };

/** Whether what the decoder makes of a piece depends only on it and on whether it is the first. */
export const isOfPiece = ({ type }: Decoder): boolean =>
  type === 'Replace' || type === 'Strip' || type === 'Metaspace' || type === 'WordPiece';

function stageOf(of: Decoder, isStreamed: boolean, next: Stage): Stage {
  switch (of.type) {
    case 'ByteFallback':
      return new ByteFallback(isStreamed, next);
    case 'Fuse':
      return new Fuse(next);
    case 'ByteLevel':
      return new ByteLevel(next);
    case 'Strip':
      return new Strip(of, next);
    case 'Replace':
      return new Replace(of.pattern.String, of.content, next);
    case 'WordPiece': {
      const cleanup = of.cleanup ? CLEANUP : [];
      return new WordPiece(
        of.prefix,
        cleanup.reduceRight<Stage>((later, [from, to]) => new Replace(from, to, later), next),
      );
    }
    case 'BPEDecoder':
      return new EndOfWord(of.suffix, next);
    case 'Metaspace':
      return new Metaspace(of.replacement, of.prepend_scheme !== 'never', next);
    default:
      return of satisfies never;
  }
}

/** The stages of these decoders before `next`. `isStreamed`: text is shown before a run of bytes is complete. */
export const stagesOf = (decoders: readonly Decoder[], isStreamed: boolean, next: Stage): Stage =>
  decoders.reduceRight<Stage>((later, each) => stageOf(each, isStreamed, later), next);

/** A stage that puts a space between pieces, as there is where a tokenizer has no decoder. */
export const spacesBefore = (next: Stage): Stage => new Spaces(next);
