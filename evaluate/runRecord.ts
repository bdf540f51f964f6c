/**
 * What a run notes so that it can be computed again: the block `record` under `provenance` of results_*.json. Paths are
 * as they were given. Results are untrusted: every field is checked when it is read.
 */
import { z } from 'zod';

/** The version of records that is written, and the only one that is read. */
export const RECORD_FORMAT = 1;

const path = z
  .string()
  .min(1)
  .max(4096)
  .refine((text) => !/\p{Cc}/u.test(text), 'a control character in a path');
const word = z.string().max(300);
const seed = z
  .int()
  .min(0)
  .max(2 ** 32);

export const RECORD = z.object({
  format: z.literal(RECORD_FORMAT),
  model: path,
  /** The checkpoint of an artifact, where it had moved. */
  checkpoint: path.exactOptional(),
  /** Made-up weights: `random:SEED`. */
  init: z
    .string()
    .regex(/^random:\d{1,15}$/)
    .exactOptional(),
  precision: word,
  kv_cache: word.exactOptional(),
  mask: word.exactOptional(),
  /** The adapter that the model has, and the SHA-256 of its content. */
  adapter: z.object({ name: word, path, hash: z.string().regex(/^[0-9a-f]{64}$/) }).exactOptional(),
  /** Names what scores are computed with: graph, weights, arithmetic. */
  artifact: word.exactOptional(),
  /** The kind of device, by which bits may differ, and its name for people. */
  device: z.object({ target: word, isa: word, name: word }),
  limit: z.number().positive().exactOptional(),
  /** A run of the questions in a file. */
  file: z
    .object({
      task: word,
      data: path,
      docs: z
        .string()
        .max(1 << 20)
        .exactOptional(),
    })
    .exactOptional(),
  /** A run of tasks. */
  tasks: z
    .object({
      names: z.array(path).min(1).max(10_000),
      include_path: z.array(path).max(1000).exactOptional(),
      data_root: path.exactOptional(),
      num_fewshot: z.int().min(0).max(100_000).exactOptional(),
      system_instruction: z
        .string()
        .max(1 << 20)
        .exactOptional(),
      /** The name of a template; true for the default one. */
      chat_template: z.union([z.literal(true), word]).exactOptional(),
      /** JSON, as Python writes it: 1.0 is not 1. */
      chat_template_kwargs: z
        .string()
        .max(1 << 16)
        .exactOptional(),
      fewshot_as_multiturn: z.boolean().exactOptional(),
      samples: z.record(word, z.array(z.int().min(0)).min(1).max(2_000_000)).exactOptional(),
      seeds: z.object({ python: seed, numpy: seed.nullable(), torch: seed, fewshot: seed }).exactOptional(),
      /** JSON, as Python writes it. */
      gen_kwargs: z
        .string()
        .max(1 << 16)
        .exactOptional(),
      predict_only: z.literal(true).exactOptional(),
    })
    .exactOptional(),
});
export type RunRecord = z.infer<typeof RECORD>;

/** What results say of a model in the words of the public harness, where an adapter is called `peft`. */
export const modelArgs = ({
  model,
  adapter,
  precision,
}: {
  readonly model: string;
  readonly adapter?: { readonly path: string } | undefined;
  readonly precision: string;
}): string => `model=${model},${adapter === undefined ? '' : `peft=${adapter.path},`}precision=${precision}`;

/** The other way; undefined where a text says nothing of a model. */
export function parseModelArgs(
  text: string,
): { readonly model: string; readonly peft?: string; readonly precision: string } | undefined {
  const [, model, peft, precision] = /^model=(.*?)(?:,peft=(.*))?,precision=(\w+)$/s.exec(text) ?? [];
  if (model === undefined || precision === undefined) return undefined;
  return { model, precision, ...(peft === undefined ? {} : { peft }) };
}
