/** `engine.search`: answers that are searched for with models that stay open, as an async iterator. */
import { searchAll } from '../commands/searchAll.js';
import { gradeProblem } from '../commands/searchFigures.js';
import { type SearchedModel, searchPorts } from '../commands/searchModels.js';
import { givenProblems } from '../commands/searchProblems.js';
import { UsageError } from '../errors.js';
import type { Engine as ModelEngine } from '../engine/engine.js';
import { searchProblem } from '../search/methods/searchProblem.js';
import { planSearch } from '../search/plan.js';
import type { ProblemResult } from '../search/result.js';
import { defined } from '../system/defined.js';
import type { Tell } from './generate.js';
import type { EngineSearchOptions, Present } from './options.js';

/** `problem` is the index of the problem. They come as problems end. */
export type SearchEvent =
  | {
      readonly kind: 'result';
      readonly problem: number;
      /** The text that is picked, and the answer in it; absent where there is none. */
      readonly text?: string;
      readonly answer?: string;
      /** Whether that is right, where the problem says what is. */
      readonly isRight?: boolean;
      /** Answers of all candidates. */
      readonly answers: readonly string[];
      /** The tree, the candidates, and which is picked. */
      readonly result: ProblemResult;
    }
  /** The problem cannot be searched; others go on. */
  | { readonly kind: 'failed'; readonly problem: number; readonly error: string };

/** Rejects with UserError where the models, or the options, do not fit. */
export async function searchWith(
  engine: ModelEngine,
  named: (name: string) => SearchedModel,
  asked: Present<EngineSearchOptions>,
  stopped: AbortSignal,
  tell: Tell<SearchEvent>,
): Promise<void> {
  const { generator, verifier, verifierKind: language, problems, atOnce, signal, ...options } = asked;
  const { problems: given } = givenProblems(problems);
  if (verifier === generator)
    throw new UsageError('search: verifier: it is the generator', 'open the model twice to search with itself');
  const judging = verifier === undefined ? undefined : { ...named(verifier), ...defined({ language }) };
  const ports = await searchPorts(engine, named(generator), judging, { options, ...defined({ atOnce }) });
  try {
    const { writer, judge, schedule } = ports;
    const { n, isSal } = planSearch(options, judge?.kind);
    await searchAll(
      given.map(({ problem }) => problem),
      {
        search: searchProblem,
        schedule,
        writer,
        judge,
        options,
        done: new Map(),
        signal: signal === undefined ? stopped : AbortSignal.any([stopped, signal]),
      },
      (searched) => {
        const { index: problem } = searched;
        if ('error' in searched) return void tell({ kind: 'failed', problem, error: searched.error });
        const { result } = searched;
        const { answers, right } = gradeProblem(searched, n, isSal).answers;
        const place = result.picked ?? -1;
        void tell({
          kind: 'result',
          problem,
          result,
          answers,
          ...defined({ text: result.candidates[place]?.text, answer: answers[place], isRight: right?.[place] }),
        });
      },
    );
  } finally {
    await ports.close();
  }
}
