/** The lines of samples_<task>_<date>.jsonl: a document and what was answered to it, once for each filter. */
import { compactJson, dumpJson, str } from '../../tasks/python/show.js';
import { Float, type Dict, type Value } from '../../tasks/python/value.js';
import type { Request } from '../../tasks/requests/task.js';
import { isText, type Response } from '../../tasks/scores/response.js';
import type { Item } from '../../tasks/scores/aggregate.js';
import { sha256 } from '../samples.js';
import type { TaskAnswers } from './answers.js';

const argumentsOf = (request: Request): readonly Value[] => {
  switch (request.kind) {
    case 'loglikelihood':
      return [request.context, request.continuation];
    case 'loglikelihood_rolling':
      return [request.text];
    case 'generate_until':
      return [request.context, request.settings];
    default:
      return request satisfies never;
  }
};

/** Every part of a response is text in the harness's files. */
const shown = (response: Response): Value =>
  isText(response) ? response : [str(new Float(response.ll)), response.isGreedy ? 'True' : 'False'];

const number = (item: Item): Value =>
  typeof item === 'number' ? new Float(item) : item.map((each) => new Float(each));

/** The hashes by which the harness tells whether two runs asked the same. */
export interface SampleHashes {
  readonly document: string;
  readonly prompt: string;
  readonly target: string;
}

export function hashesOf({ document, target, requests }: TaskAnswers['task']['documents'][number]): SampleHashes {
  const [first] = requests;
  return {
    document: sha256(dumpJson(document)),
    prompt: sha256(first === undefined ? '' : String(argumentsOf(first)[0])),
    target: sha256(str(target)),
  };
}

const record = (entries: readonly (readonly [string, Value])[]): Dict => new Map(entries);

/** Lines in the order of the harness: all documents for one filter, then for the next. */
export function* sampleLines({ task, responses, measured }: TaskAnswers): Generator<string> {
  const hashes = task.documents.map(hashesOf);
  for (const filter of task.scores.filters.keys()) {
    for (const [i, { docId, index = docId, document, target, requests }] of task.documents.entries()) {
      const { filter: name, filtered, values } = measured[i]![filter]!;
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
        ['resps', responses[i]!.map((all) => all.map(shown))],
        ['filtered_resps', filtered.map(shown)],
        ['filter', name],
        ['metrics', [...values.keys()]],
        ['doc_hash', hashes[i]!.document],
        ['prompt_hash', hashes[i]!.prompt],
        ['target_hash', hashes[i]!.target],
        ...[...values].map(([metric, item]) => [metric, number(item)] as const),
      ]);
      yield `${compactJson(line)}\n`;
    }
  }
}
