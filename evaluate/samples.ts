/**
 * The lines of samples_<task>_<date>.jsonl: a document and what was answered to it, once for each filter. In the public
 * harness's files `arguments` is an object of objects (gen_args_0.arg_0), which Zeno's script reads. Its logger for
 * Weights & Biases takes lists (arguments[0][0]) from memory, before they are written, so no file can serve both.
 */
import { str } from '../python/show.js';
import { type Dict, Float, type PyValue } from '../python/value.js';
import type { DocumentRequests } from '../tasks/requests/task.js';
import type { Item } from '../tasks/scores/aggregate.js';
import { isText, type Response } from '../tasks/scores/metrics.js';
import { HARNESS_LAYOUT, type ResultsLayout } from './layout.js';
import { type AnsweredDocument, argumentsOf } from './taskAnswers.js';

/** Every part of a response is text in the harness's files; of a whole text it has the likelihood alone. */
function shown(response: Response, isRolling: boolean, { logLikelihood }: ResultsLayout): PyValue {
  if (isText(response)) return response;
  const ll = logLikelihood(response.ll);
  return isRolling ? ll : [ll, response.isGreedy ? 'True' : 'False'];
}

/** Whether a value of a metric is a whole number in the harness: labels, counts of words and bytes, and some flags. */
function isWhole({ choices, requests: [first] }: DocumentRequests, metric: string, place: number): boolean {
  if (first?.kind === 'loglikelihood_rolling') return place === 1;
  if (first?.kind !== 'loglikelihood') return false;
  if (choices === undefined) return metric === 'acc';
  return ['exact_match', 'f1', 'mcc'].includes(metric) || (metric === 'brier_score' && place === 0);
}

function numbers(document: DocumentRequests, metric: string, item: Item): PyValue {
  const number = (value: number, place: number): PyValue =>
    isWhole(document, metric, place) ? value : new Float(value);
  return typeof item === 'number' ? number(item, 0) : item.map(number);
}

const record = (entries: readonly (readonly [string, PyValue])[]): Dict => new Map(entries);

/** One line for each filter. The harness writes all documents for one filter, then for the next. */
export function sampleLines(
  { document: of, responses, measured, hashes }: AnsweredDocument,
  layout: ResultsLayout = HARNESS_LAYOUT,
): string[] {
  const { docId, index = docId, document, target, requests } = of;
  const show = (response: Response): PyValue => shown(response, requests[0]?.kind === 'loglikelihood_rolling', layout);
  const greedy = responses.map(([answer = '']) => !isText(answer) && answer.isGreedy);
  return measured.map(({ filter: name, filtered, areLists, values }) => {
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
      ['resps', responses.map((all) => all.map(show))],
      ['filtered_resps', filtered.map((each) => (areLists === true ? [show(each)] : show(each)))],
      ['filter', name],
      ['metrics', [...values.keys()]],
      ['doc_hash', hashes.document],
      ['prompt_hash', hashes.prompt],
      ['target_hash', hashes.target],
      ...[...values].map(([metric, item]) => [metric, metric === 'bypass' ? null : numbers(of, metric, item)] as const),
      ...(layout.kind === 'file' ? [['is_greedy', greedy] as const] : []),
    ]);
    return `${layout.line(line)}\n`;
  });
}
