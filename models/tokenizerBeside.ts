/** The `post_processor` of a tokenizer.json: the tokens that it adds around every text. */
import { z } from 'zod';
import { quote } from '../system/json.js';
import { id, MAX_COMPONENTS, plain, short } from './tokenizerModels.js';

const piece = z.union([
  z.strictObject({ SpecialToken: z.object({ id: short }) }),
  z.strictObject({ Sequence: z.object({ id: z.enum(['A', 'B']) }) }),
]);
const named = z.tuple([short, id]);
export const postProcessor = z.discriminatedUnion('type', [
  plain('ByteLevel'),
  z.object({ type: z.enum(['BertProcessing', 'RobertaProcessing']), sep: named, cls: named }),
  z.object({
    type: z.literal('TemplateProcessing'),
    single: z.array(piece).max(MAX_COMPONENTS),
    special_tokens: z.record(z.string(), z.object({ ids: z.array(id).min(1).max(MAX_COMPONENTS) })),
  }),
]);

/** Special tokens around a text, each with the ids that it stands for. */
export interface Beside {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/** The tokens that post-processors add before and after every text. */
export function besideOf(processors: readonly z.infer<typeof postProcessor>[], fail: (what: string) => never): Beside {
  const besides = processors.flatMap((processor): Beside[] => {
    switch (processor.type) {
      case 'ByteLevel':
        return []; // It changes offsets only.
      case 'BertProcessing':
      case 'RobertaProcessing':
        return [{ before: [processor.cls[1]], after: [processor.sep[1]] }];
      case 'TemplateProcessing': {
        const { single, special_tokens: special } = processor;
        const at = single.findIndex((item) => 'Sequence' in item);
        if (single.filter((item) => 'Sequence' in item).length !== 1)
          return fail('its template must contain the text exactly once');
        const idsOf = (items: typeof single): number[] =>
          items.flatMap((item) =>
            'SpecialToken' in item
              ? ((Object.hasOwn(special, item.SpecialToken.id) ? special[item.SpecialToken.id]?.ids : undefined) ??
                fail(`${quote(item.SpecialToken.id)} is not among its special_tokens`))
              : [],
          );
        return [{ before: idsOf(single.slice(0, at)), after: idsOf(single.slice(at + 1)) }];
      }
      default:
        return processor satisfies never;
    }
  });
  if (besides.length > 1) return fail('several processors add tokens');
  return besides[0] ?? { before: [], after: [] };
}
