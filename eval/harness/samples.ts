/** The lines of samples_<task>_<date>.jsonl: a document and what was answered to it, once for each filter. */
import { compactJson, str } from '../../tasks/python/show.js';
import { Float, type Dict, type Value } from '../../tasks/python/value.js';
import { isText, type Response } from '../../tasks/scores/response.js';
import type { Item } from '../../tasks/scores/aggregate.js';
import type { AnsweredDocument } from './answers.js';
import { argumentsOf } from './hashes.js';

/** Every part of a response is text in the harness's files. */
const shown = (response: Response): Value =>
  isText(response) ? response : [str(new Float(response.ll)), response.isGreedy ? 'True' : 'False'];

const number = (item: Item): Value =>
  typeof item === 'number' ? new Float(item) : item.map((each) => new Float(each));

const record = (entries: readonly (readonly [string, Value])[]): Dict => new Map(entries);

/** One line for each filter. The harness writes all documents for one filter, then for the next. */
export function sampleLines({ document: of, responses, measured, hashes }: AnsweredDocument): string[] {
  const { docId, index = docId, document, target, requests } = of;
  return measured.map(({ filter: name, filtered, values }) => {
    const line = record([
      ['doc_id', index],
      ['doc', document],
      ['target', str(target)],
      [
        'arguments',
        record(
          requests.map((request, r) => [
            `gen_args_${r}`,
            record(argumentsOf(request).map((argument, a) => [`arg_${a}`, argument])),
          ]),
        ),
      ],
      ['resps', responses.map((all) => all.map(shown))],
      ['filtered_resps', filtered.map(shown)],
      ['filter', name],
      ['metrics', [...values.keys()]],
      ['doc_hash', hashes.document],
      ['prompt_hash', hashes.prompt],
      ['target_hash', hashes.target],
      ...[...values].map(([metric, item]) => [metric, metric === 'bypass' ? null : number(item)] as const),
    ]);
    return `${compactJson(line)}\n`;
  });
}
