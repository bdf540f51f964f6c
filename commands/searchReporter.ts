/** Writes what a search gives: samples_*.jsonl, a line for each problem, and results_*.json, as `run` lays them out. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { clock } from '../driver/phases.js';
import { arithmeticName } from '../driver/precision.js';
import { VERSION } from '../driver/program.js';
import { modelFolder, sanitiseModelName } from '../evaluate/output.js';
import { modelArgs } from '../evaluate/runRecord.js';
import { figures, fileDate, resultsName, samplesName, toJson } from '../evaluate/results.js';
import type { Problem } from '../search/path.js';
import type { ProblemResult } from '../search/result.js';
import { defined } from '../system/defined.js';
import { Scratch, writeAtomically } from '../system/write.js';
import { adapterOf, checkpointId, type LoadedModel } from './loadModel.js';
import { figuresTable, type GradedProblem, gradeProblem, searchFigures } from './searchFigures.js';
import type { GivenProblem, Problems } from './searchProblems.js';
import type { ModelWork, SearchedProblem, SearchRequest } from './searchRequest.js';

const AGAIN =
  'Free some space or fix the folder, then run the same command with --resume: finished problems are in the journal';

export interface SearchFiles {
  readonly output: string | undefined;
  /** As the folder is named. */
  readonly modelName: string;
}

/** What results say of the whole. */
export interface SearchFacts {
  readonly request: SearchRequest;
  /** What was asked, with every default. */
  readonly asked: Readonly<Record<string, string | number | boolean | null>>;
  readonly problems: Problems;
  readonly generator: LoadedModel;
  readonly verifier: LoadedModel | undefined;
  readonly work: {
    readonly generator: ModelWork;
    readonly verifier: ModelWork | undefined;
    readonly resumed: number;
    readonly loadSeconds: number;
    readonly seconds: number;
  };
  readonly started: Date;
}

export interface SearchReport {
  readonly samplesSha256: string;
  readonly table: string;
  readonly resultsPath: string | undefined;
  readonly samplesPath: string | undefined;
}

/** Takes problems as they end, in any order; lines are in the order of the problems. */
export class SearchReporter {
  readonly #files: SearchFiles;
  readonly #problems: Problems;
  readonly #asked: SearchFacts['asked'];
  readonly #scratch: Scratch | undefined;
  readonly #hash = createHash('sha256');
  /** Ended before one that comes before them. */
  readonly #held = new Map<number, SearchedProblem>();
  #next = 0;
  readonly #graded: Pick<GradedProblem, 'values'>[] = [];
  #drawnTokens = 0;
  #failed = 0;

  constructor(files: SearchFiles, problems: Problems, asked: SearchFacts['asked']) {
    this.#files = files;
    this.#problems = problems;
    this.#asked = asked;
    const folder = this.#folder;
    this.#scratch =
      folder === undefined ? undefined : new Scratch(join(folder, samplesName(problems.task, 'unfinished')), AGAIN);
  }

  get #folder(): string | undefined {
    const { output, modelName } = this.#files;
    return output === undefined ? undefined : modelFolder(output, modelName);
  }

  /** Throws UserError for a full disk. */
  add(searched: SearchedProblem): void {
    this.#held.set(searched.index, searched);
    for (let each = this.#held.get(this.#next); each !== undefined; each = this.#held.get(++this.#next)) {
      this.#held.delete(this.#next);
      this.#take(each, this.#problems.problems[each.index]!);
    }
  }

  #take(searched: SearchedProblem, given: GivenProblem): void {
    if ('error' in searched) this.#failed++;
    else this.#drawnTokens += searched.result.drawnTokens;
    const { n, compat } = this.#asked;
    const graded = gradeProblem(searched, Number(n), compat === 'sal');
    this.#graded.push({ values: graded.values });
    const line = `${toJson(sampleOf(searched, given, graded, this.#asked))}\n`;
    this.#hash.update(line);
    this.#scratch?.append([line]);
  }

  /** Call once all problems are added. Throws UserError for a full disk. */
  write(facts: SearchFacts): SearchReport {
    const samplesSha256 = this.#hash.digest('hex');
    const finished = new Date(clock());
    const results = this.#results(facts, samplesSha256, finished);
    const table = figuresTable(searchFigures(this.#graded));
    const folder = this.#folder;
    if (folder === undefined || this.#scratch === undefined)
      return { samplesSha256, table, resultsPath: undefined, samplesPath: undefined };
    const date = fileDate(finished);
    const samplesPath = join(folder, samplesName(this.#problems.task, date));
    writeAtomically(samplesPath, this.#scratch.parts(), AGAIN);
    const resultsPath = join(folder, resultsName(date));
    writeAtomically(resultsPath, [`${toJson(results, 2)}\n`], AGAIN);
    return { samplesSha256, table, resultsPath, samplesPath };
  }

  #results(facts: SearchFacts, samplesSha256: string, finished: Date): Readonly<Record<string, unknown>> {
    const { request, problems, generator, verifier, work, started } = facts;
    const { task, sha256, title, total } = problems;
    const count = problems.problems.length;
    const [begin, end] = [started.getTime() / 1000, finished.getTime() / 1000];
    const { modelName } = this.#files;
    const found = searchFigures(this.#graded);
    const names = [...found.keys()].map((key) => key.replace(/,none$/, ''));
    return {
      results: { [task]: { name: task, alias: task, sample_len: count, ...figures(found) } },
      group_subtasks: { [task]: [] },
      configs: {
        [task]: {
          task,
          dataset_path: title,
          dataset_sha256: sha256,
          num_fewshot: 0,
          output_type: 'generate_until',
          generation_kwargs: this.#asked,
          metric_list: names.map((metric) => ({ metric, aggregation: 'mean', higher_is_better: true })),
          metadata: { version: 1 },
        },
      },
      versions: { [task]: 1 },
      'n-shot': { [task]: 0 },
      higher_is_better: { [task]: Object.fromEntries(names.map((name) => [name, true])) },
      'n-samples': { [task]: { original: total, effective: count } },
      config: {
        model: 'tilewright',
        model_args: modelArgs(request),
        batch_size: 'auto',
        device: generator.model.target.name,
        arithmetic: arithmeticName(generator.model),
        isa: generator.model.isa,
        limit: request.limit ?? null,
      },
      git_hash: VERSION,
      date: begin,
      samples_sha256: { [task]: samplesSha256 },
      max_length: generator.limits.contextLength,
      provenance: {
        checkpoint: checkpointId(generator),
        checkpoint_path: generator.reference.path,
        ...adapterOf(request.adapter, generator),
        tokenizer_sha256: generator.tokenizer.hash,
        context_length: generator.limits.contextLength,
        ...(verifier === undefined
          ? {}
          : {
              verifier: {
                checkpoint: checkpointId(verifier),
                checkpoint_path: verifier.reference.path,
                tokenizer_sha256: verifier.tokenizer.hash,
                arithmetic: arithmeticName(verifier.model),
              },
            }),
        dataset_path: title,
        dataset_sha256: sha256,
        questions: count,
      },
      model_source: 'tilewright',
      model_name: modelName,
      model_name_sanitized: sanitiseModelName(modelName),
      start_time: begin,
      end_time: end,
      total_evaluation_time_seconds: String((finished.getTime() - started.getTime()) / 1000),
      throughput: ratesOf(count - work.resumed, work),
      /** What makes this a search, and not a run. */
      search: {
        asked: this.#asked,
        failed: this.#failed,
        resumed: work.resumed,
        drawn_tokens: this.#drawnTokens,
        seconds: work.seconds,
        generator: work.generator,
        ...defined({ verifier: work.verifier }),
      },
    };
  }

  /** Removes what is of no use without the rest. */
  close(): void {
    this.#scratch?.close();
  }
}

/** What this process did and how fast. */
function ratesOf(questions: number, work: SearchFacts['work']): Readonly<Record<string, number>> {
  const { generator, verifier, loadSeconds, seconds } = work;
  const tokensComputed = generator.computedTokens + (verifier?.computedTokens ?? 0);
  const rate = (count: number): number => (seconds > 0 ? count / seconds : 0);
  return {
    questions,
    tokensComputed,
    loadSeconds,
    scoreSeconds: seconds,
    questionsPerSecond: rate(questions),
    tokensPerSecond: rate(tokensComputed),
  };
}

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const docOf = ({ id, problem, answer }: Problem, beside: GivenProblem['beside']) => ({
  ...beside,
  id,
  problem,
  ...defined({ answer }),
});

const pickedOf = ({ candidates, picked }: ProblemResult): string =>
  picked === null ? '' : (candidates[picked]?.text ?? '');

/** A line of samples, with the tree beside what every task's lines have. */
function sampleOf(
  searched: SearchedProblem,
  { problem, beside }: GivenProblem,
  { answers, values }: GradedProblem,
  asked: SearchFacts['asked'],
): Readonly<Record<string, unknown>> {
  const doc = docOf(problem, beside);
  const result = 'result' in searched ? searched.result : undefined;
  return {
    doc_id: searched.index,
    doc,
    target: problem.answer ?? '',
    arguments: { gen_args_0: { arg_0: problem.problem, arg_1: asked } },
    resps: [result?.candidates.map(({ text }) => text) ?? []],
    filtered_resps: [result === undefined ? '' : pickedOf(result)],
    filter: 'none',
    metrics: [...values.keys()],
    doc_hash: sha256(JSON.stringify(doc)),
    prompt_hash: sha256(problem.problem),
    target_hash: sha256(problem.answer ?? ''),
    ...Object.fromEntries(values),
    ...('error' in searched ? { error: searched.error } : { search: searched.result, answers }),
  };
}
