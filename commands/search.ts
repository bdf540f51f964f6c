/** `search`: reads problems, opens a generator and a verifier in one engine, and searches for answers. */
import { clock } from '../driver/phases.js';
import { isArtifact, modelName } from '../driver/names.js';
import { VERSION } from '../driver/program.js';
import type { WithTargetChoice } from '../driver/precision.js';
import type { Ui } from '../driver/requests.js';
import { UsageError } from '../errors.js';
import { journalPath, type RunIdentity } from '../evaluate/journal.js';
import { claimModelName, modelFolder } from '../evaluate/output.js';
import { openCheckpoint } from '../models/checkpoint.js';
import { requireModelAt } from '../models/model/refusals.js';
import { planSearch } from '../search/plan.js';
import { searchProblem } from '../search/methods/searchProblem.js';
import type { PathJudge } from '../search/ports.js';
import { quoteForShell } from '../system/process.js';
import { counted } from '../system/text.js';
import { prepareOutput } from '../system/write.js';
import { checkpointId } from './loadModel.js';
import { modelIdentity } from './scoreSet.js';
import { searchAll } from './searchAll.js';
import { SearchJournal, searchJournalName } from './searchJournal.js';
import { type OpenSearch, openSearch } from './searchModels.js';
import { type Problems, readProblems } from './searchProblems.js';
import { SearchProgress } from './searchProgress.js';
import { SearchReporter } from './searchReporter.js';
import type { SearchedProblem, SearchRequest, SearchSummary } from './searchRequest.js';
import { textFactsOf, textsIdentity } from './textFacts.js';
import { scoresAnswers } from './verifier.js';

/**
 * `onSearched`: told of each problem as it ends. Undefined where the signal was aborted before all had ended: what had
 * is in the journal. Rejects with UserError if the user can fix the problem.
 */
export async function search(
  asked: WithTargetChoice<SearchRequest>,
  ui: Ui,
  onSearched: (searched: SearchedProblem) => void = () => undefined,
): Promise<SearchSummary | undefined> {
  const started = new Date(clock());
  const begin = performance.now();
  const { verifier, output, resume, limit, signal = new AbortController().signal } = asked;
  for (const model of [asked.model, ...(verifier === undefined ? [] : [verifier.model])]) requireModelAt(model);
  if (resume && output === undefined)
    throw new UsageError('--resume needs the folder of the search that it continues', 'add --out DIR');
  // Before anything is loaded.
  planSearch(asked.options, verifier && kindOf(verifier.model, asked.init));
  const wanted = asked.modelName ?? modelName(asked.model);
  if (output === undefined) ui.note('no --out: results are printed, nothing is written');
  else prepareOutput(modelFolder(output, wanted));
  ui.phase('problems');
  const problems = await readProblems(asked.problems, limit, signal);
  const opened = await openSearch(asked, ui);
  try {
    const { generator } = opened;
    const name = output === undefined ? wanted : claimModelName(output, wanted, checkpointId(generator));
    const request = { ...asked, target: generator.model.target.name } as SearchRequest;
    return await searchOpened({ request, problems, opened, name, started, begin, signal }, ui, onSearched);
  } finally {
    await opened.close();
  }
}

/** What a verifier judges, as far as its checkpoint says before it is loaded; what else there is will say so later. */
function kindOf(model: string, { kind }: SearchRequest['init']): PathJudge['kind'] {
  const isKnown = kind === 'checkpoint' && !isArtifact(model);
  return isKnown && scoresAnswers(openCheckpoint(model)) ? 'outcome' : 'process';
}

interface Opened {
  readonly request: SearchRequest;
  readonly problems: Problems;
  readonly opened: OpenSearch;
  readonly name: string;
  readonly started: Date;
  readonly begin: number;
  readonly signal: AbortSignal;
}

async function searchOpened(
  { request, problems, opened, name, started, begin, signal }: Opened,
  ui: Ui,
  onSearched: (searched: SearchedProblem) => void,
): Promise<SearchSummary | undefined> {
  const { output } = request;
  const { generator, verifier, writer, judge } = opened;
  const asked = askedOf(request, opened);
  const journal = output === undefined ? undefined : await openJournal(request, problems, opened, name, asked, ui);
  const reporter = new SearchReporter({ output, modelName: name }, problems, asked);
  try {
    const loadSeconds = (performance.now() - begin) / 1000;
    const done = journal?.done ?? new Map();
    const all = problems.problems.map(({ problem }) => problem);
    ui.phase('search', counted(all.length, 'problem'));
    const from = performance.now();
    const progress = new SearchProgress(ui, all.length, request.options.iterations ?? 40, opened.computedTokens);
    let [ended, failed] = [0, 0];
    await searchAll(
      all,
      {
        search: searchProblem,
        writer: progress.watch(writer),
        judge,
        options: request.options,
        schedule: opened.schedule,
        done,
        signal,
      },
      (searched) => {
        ended++;
        const isResumed = done.has(searched.index);
        if ('error' in searched) failed++;
        else if (!isResumed) journal?.append([{ ...searched, id: searched.problem.id }]);
        reporter.add(searched);
        progress.end(searched.problem, isResumed);
        onSearched(searched);
      },
    );
    journal?.sync();
    if (ended < all.length) return undefined;
    const seconds = (performance.now() - from) / 1000;
    const work = { ...opened.work(), resumed: done.size, loadSeconds, seconds };
    const report = reporter.write({ request, asked, problems, generator, verifier, work, started });
    return {
      task: problems.task,
      problems: all.length,
      resumed: done.size,
      failed,
      seconds,
      generator: work.generator,
      verifier: work.verifier,
      ...report,
    };
  } finally {
    reporter.close();
    journal?.close();
  }
}

/** What results depend on, with every default. When and where they were computed is no part of it. */
function askedOf(
  { options }: SearchRequest,
  { judge }: OpenSearch,
): Readonly<Record<string, string | number | boolean | null>> {
  const { speculate: _, isSal, ...plan } = planSearch(options, judge?.kind);
  const { stepStop, stepTokens, topP, ignoreEos, system } = options;
  return {
    ...plan,
    compat: isSal ? 'sal' : null,
    stepStop: stepTokens === undefined ? (stepStop ?? '\n\n') : null,
    stepTokens: stepTokens ?? null,
    topP: topP ?? 1,
    ignoreEos: ignoreEos ?? false,
    system: system ?? 'search-and-learn',
  };
}

async function openJournal(
  { output = '', resume, resumeCommand }: SearchRequest,
  { task, sha256, problems }: Problems,
  { generator, verifier }: OpenSearch,
  name: string,
  asked: Readonly<Record<string, string | number | boolean | null>>,
  ui: Ui,
): Promise<SearchJournal> {
  const ofVerifier = verifier === undefined ? {} : await modelIdentity(verifier);
  const identity: RunIdentity = {
    ...(await modelIdentity(generator)),
    ...Object.fromEntries(Object.entries(ofVerifier).map(([key, value]) => [`verifier_${key}`, value])),
    ...textsIdentity(textFactsOf(generator)),
    task,
    dataset: sha256,
    version: VERSION,
    ...asked,
  };
  const path = journalPath(modelFolder(output, name), searchJournalName(task), sha256);
  const ids = problems.map(({ problem }) => problem.id);
  const journal = new SearchJournal(path, identity, resume, ids);
  const { kept, done } = journal;
  if (kept !== undefined && kept.questions > 0) {
    const again = resumeCommand ?? 'the same command with --resume';
    ui.note(`an earlier search of ${counted(kept.questions, 'problem')} is kept in ${kept.path}`);
    ui.note(`to go on with it instead: mv ${quoteForShell(kept.path)} ${quoteForShell(path)} && ${again}`);
  }
  if (done.size > 0) ui.note(`${counted(done.size, 'problem')} taken over from ${path}`);
  else if (resume) ui.note(`nothing to take over: ${path} has no problem of this search`);
  return journal;
}
