/** Answers that were computed again beside those that are recorded: to the bit, and by how much they differ. */
import { isText, type Response } from '../../tasks/scores/metrics.js';
import { argmax } from '../metrics.js';
import type { Findings } from './findings.js';

/** What the answers came to. */
export interface AnswerCounts {
  readonly documents: number;
  readonly logLikelihoods: {
    readonly compared: number;
    readonly equal: number;
    /** Nats, of all; 0 where none was compared. */
    readonly meanDifference: number;
    readonly maxDifference: number;
  };
  readonly texts: { readonly compared: number; readonly equal: number };
  /** Documents with several choices, and those of which another is the most likely one now. */
  readonly choices: { readonly compared: number; readonly changed: number };
}

/** Where an answer belongs. */
export interface AnswerPlace {
  readonly task: string;
  readonly doc: number;
}

type Answers = readonly (readonly Response[])[];

/** `choice B` of several, and `request 27` where there are more than letters. */
const nameOf = (request: number, all: number): string =>
  all === 1 ? '' : all <= 26 ? ` of choice ${String.fromCharCode(65 + request)}` : ` of request ${request}`;

/** How a text begins to differ: a few letters before, and what follows. */
function fromDifference(text: string, other: string): string {
  let at = 0;
  while (at < text.length && text[at] === other[at]) at++;
  const from = Math.max(0, at - 12);
  return `${from > 0 ? '…' : ''}${text.slice(from, at + 40)}`;
}

export class AnswerComparison {
  readonly #findings: Findings;
  #documents = 0;
  #lls = 0;
  #equal = 0;
  #sum = 0;
  #max = 0;
  #texts = 0;
  #equalTexts = 0;
  #choices = 0;
  #changed = 0;

  constructor(findings: Findings) {
    this.#findings = findings;
  }

  get counts(): AnswerCounts {
    return {
      documents: this.#documents,
      logLikelihoods: {
        ...{ compared: this.#lls, equal: this.#equal },
        ...{ meanDifference: this.#lls === 0 ? 0 : this.#sum / this.#lls, maxDifference: this.#max },
      },
      texts: { compared: this.#texts, equal: this.#equalTexts },
      choices: { compared: this.#choices, changed: this.#changed },
    };
  }

  /** `isRolling`: nothing is recorded of whether a text is the most likely one. */
  add(place: AnswerPlace, recorded: Answers, computed: Answers, isRolling: boolean): void {
    this.#documents++;
    computed.forEach((all, request) =>
      all.forEach((now, repeat) => {
        this.#compare(place, nameOf(request, computed.length), recorded[request]?.[repeat], now, isRolling);
      }),
    );
    this.#compareChoice(recorded, computed);
  }

  #compare(place: AnswerPlace, of: string, before: Response | undefined, now: Response, isRolling: boolean): void {
    this.#findings.compared('answers');
    if (isText(now)) {
      this.#texts++;
      if (before === now) this.#equalTexts++;
      else if (before === undefined || !isText(before))
        this.#findings.differ('answers', `text${of}`, { ...place, recorded: undefined, computed: now });
      else
        this.#findings.differ('answers', `text${of}`, {
          ...place,
          ...{ recorded: fromDifference(before, now), computed: fromDifference(now, before) },
        });
      return;
    }
    this.#lls++;
    if (before === undefined || isText(before)) {
      this.#findings.differ('answers', `log-likelihood${of}`, { ...place, recorded: undefined, computed: now.ll });
      return;
    }
    const difference = Math.abs(now.ll - before.ll);
    this.#sum += difference;
    this.#max = Math.max(this.#max, difference);
    if (!Object.is(now.ll, before.ll))
      this.#findings.differ('answers', `log-likelihood${of}`, { ...place, recorded: before.ll, computed: now.ll });
    else if (!isRolling && now.isGreedy !== before.isGreedy)
      this.#findings.differ('answers', `whether the text${of} is the most likely one`, {
        ...place,
        ...{ recorded: before.isGreedy, computed: now.isGreedy },
      });
    else this.#equal++;
  }

  #compareChoice(recorded: Answers, computed: Answers): void {
    const numbers = (answers: Answers): number[] => answers.flatMap(([first]) => (isNumber(first) ? [first.ll] : []));
    const [before, now] = [numbers(recorded), numbers(computed)];
    if (now.length < 2 || now.length !== before.length) return;
    this.#choices++;
    if (argmax(before) !== argmax(now)) this.#changed++;
  }
}

const isNumber = (response: Response | undefined): response is Exclude<Response, string> =>
  response !== undefined && !isText(response);
